"""A stream reader that raises a ConfigError when a query uses it.

If creating a stream reader fails, Spark's process for the query fails with an unbound local
variable, and the user sees "cannot access local variable 'reader'". Errors that a reader raises are
shown unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from aiokq.errors import ConfigError

__all__ = ["failing_stream_reader"]


class _FailingStreamReader(DataSourceStreamReader):
    def __init__(self, refusal: str) -> None:
        self._refusal = refusal

    def _refuse(self) -> NoReturn:
        raise ConfigError(self._refusal)

    def getDefaultReadLimit(self) -> NoReturn:
        self._refuse()

    def initialOffset(self) -> NoReturn:
        self._refuse()

    def latestOffset(self, start: object = None, limit: object = None) -> NoReturn:
        self._refuse()

    def partitions(
        self, start: Mapping[str, object], end: Mapping[str, object]
    ) -> Sequence[InputPartition]:
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        self._refuse()


def failing_stream_reader(refusal: ConfigError) -> DataSourceStreamReader:
    """Return a reader that raises `refusal` at Spark's first call."""
    return _FailingStreamReader(str(refusal))
