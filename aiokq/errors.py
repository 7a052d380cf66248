"""The errors of aiokq: its own classes, and a class for each Kafka error code."""

from __future__ import annotations

from aiokq.core.broker_errors import *  # noqa: F403  makes these names known to type checkers
from aiokq.core.errors import *  # noqa: F403  listed in its __all__
from aiokq.core.errors import __all__ as __all__
