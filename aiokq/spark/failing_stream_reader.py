"""failing_stream_reader: a stream reader that answers everything by the ConfigError that there was.

Spark's process for a query, where making the reader fails, fails of an unbound name itself: what
a user reads last is "cannot access local variable 'reader'". What a reader raises is told as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from aiokq.errors import ConfigError

__all__ = ["failing_stream_reader"]


class _FailingStreamReader(DataSourceStreamReader):
    """Raises at whatever Spark asks first: a limit, the beginning, or the end."""

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
    """The reader of a stream whose options or schema are refused."""
    return _FailingStreamReader(str(refusal))
