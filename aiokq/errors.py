"""Every error aiokq raises: the tree in `aiokq.core.errors`, one class per Kafka code."""

from __future__ import annotations

from aiokq.core.broker_errors import *  # noqa: F403  type checkers see them only so
from aiokq.core.errors import *  # noqa: F403  listed in its __all__
from aiokq.core.errors import __all__ as __all__
