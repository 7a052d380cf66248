"""ExportFailed: which rows could not be written."""

from __future__ import annotations

from aiokq.errors import KafkaError

__all__ = ["ExportFailed"]


class ExportFailed(KafkaError):
    """An export ended before all rows were acknowledged; the cause says why.

    With a file for `resume` the same call again goes on where it was.
    """
