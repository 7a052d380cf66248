"""Errors of a stream's options are raised by its reader, because Spark hides earlier ones."""

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
    """Raised by streamReader, the error ended as "cannot access local variable 'reader'"."""
    source = AiokqDataSource({"kafka.bootstrap.servers": "a:1", "subscribe": "t", "maxTasks": "x"})
    reader = source.streamReader(StructType())
    with pytest.raises(ConfigError, match="maxTasks"):
        asks(reader)
    reader.stop()  # Spark calls it after the error
