"""A stream whose options are refused is told so by the reader, not by what Spark makes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.types import StructType

from aiokq.errors import ConfigError
from aiokq.spark.source import AiokqDataSource


@pytest.mark.parametrize(
    "asks",
    [
        lambda reader: reader.getDefaultReadLimit(),
        lambda reader: reader.initialOffset(),
        lambda reader: reader.latestOffset(),
        lambda reader: reader.latestOffset({}, None),
        lambda reader: reader.partitions({}, {}),
    ],
    ids=["limit", "initial", "latest", "latest-4.2", "partitions"],
)
def test_a_refused_stream_raises_whatever_is_asked_first(asks: Callable[[Any], object]) -> None:
    """Raised by streamReader, it ended as "cannot access local variable 'reader'"."""
    source = AiokqDataSource({"kafka.bootstrap.servers": "a:1", "subscribe": "t", "maxTasks": "x"})
    reader = source.streamReader(StructType())
    with pytest.raises(ConfigError, match="maxTasks"):
        asks(reader)
    reader.stop()  # Spark does, after the error
