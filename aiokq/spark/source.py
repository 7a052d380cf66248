"""AiokqDataSource, the data source behind format("aiokq")."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from aiokq.errors import ConfigError
from aiokq.spark.option_names import check_names
from aiokq.spark.options import CONSUMER_OPTIONS, ReadOptions, frame_columns
from aiokq.spark.redaction import redact_secrets, warn_of_shown_secrets
from aiokq.spark.schema import check_columns, ddl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["AiokqDataSource", "register"]


class AiokqDataSource(DataSource):
    """Data source for Kafka topics, with the options of Spark's own connector.

    Spark finds ``format("aiokq")`` by itself through `pyspark_aiokq`; call `register` to set the
    number of tasks or pushdown for a session.

    Attributes:
        tasks: default of the option ``maxTasks``; None for the number of cores.
        pushdown: default of the option ``pushdown``.
        redacted: whether the session hides secret options (`redaction`).

    Raises:
        ConfigError: an option is unknown.
    """

    # The defaults are attributes of the class, because Spark creates instances in processes without
    # a session.
    tasks: ClassVar[int | None] = None
    pushdown: ClassVar[bool] = False
    redacted: ClassVar[bool] = False

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        check_names(options)
        if not self.redacted:
            warn_of_shown_secrets(options)

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "aiokq"

    def schema(self) -> str:
        """Return the schema of the frame in Spark's DDL."""
        return ddl(frame_columns(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch.

        Raises:
            ConfigError: an option or the schema is refused.
        """
        from aiokq.spark.batch_reader import KafkaBatchReader
        from aiokq.spark.pushdown import PushdownReader

        options = self._read_options(schema, streaming=False)
        pushdown = options.pushdown if "pushdown" in self.options else self.pushdown
        kind = PushdownReader if pushdown else KafkaBatchReader
        return kind(options, schema, self._max_tasks())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a stream; if an option is refused, the reader's methods raise."""
        from aiokq.spark.failing_stream_reader import failing_stream_reader
        from aiokq.spark.stream_reader import stream_reader

        try:
            options = self._read_options(schema, streaming=True)
            return stream_reader(options, schema, self._max_tasks())
        except ConfigError as error:
            return failing_stream_reader(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch."""
        from aiokq.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a stream."""
        from aiokq.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)

    def _read_options(self, schema: StructType, *, streaming: bool) -> ReadOptions:
        from aiokq.spark.security import warn_of_unused

        options = ReadOptions.parse(self.options, streaming=streaming)
        check_columns(options.columns, schema)
        warn_of_unused(options.kafka, CONSUMER_OPTIONS)
        return options

    def _max_tasks(self) -> int:
        return self.tasks or os.cpu_count() or 1


def register(
    spark: SparkSession, *, tasks: int | None = None, pushdown: bool | None = None
) -> type[AiokqDataSource]:
    """Register ``format("aiokq")`` with a session, with defaults taken from the session.

    After the call, the session's plans do not show secret options.

    Args:
        spark: the session, classic or Connect.
        tasks: maximum number of tasks of a read that does not set the option ``maxTasks``; default:
            the session's default parallelism, or in Connect the number of cores.
        pushdown: whether filters on partition, topic, offset and timestamp limit the records that
            are read; default: the value of ``spark.sql.python.filterPushdown.enabled``. True
            enables that setting.

    Returns:
        the class that was registered.
    """
    setting = "spark.sql.python.filterPushdown.enabled"
    if pushdown is None:
        pushdown = str(spark.conf.get(setting, "false")).lower() == "true"
    elif pushdown:
        spark.conf.set(setting, "true")
    if tasks is None:
        tasks = _default_parallelism(spark)
    redact_secrets(spark)
    source = type(
        "AiokqDataSource",
        (AiokqDataSource,),
        {
            "tasks": tasks,
            "pushdown": pushdown,
            "redacted": True,
            "__module__": AiokqDataSource.__module__,
        },
    )
    spark.dataSource.register(source)
    return source


def _default_parallelism(spark: SparkSession) -> int | None:
    """Return the default parallelism; None in Connect, whose sessions do not have it."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception as error:
        if "JVM" in str(error) or "CONNECT" in str(error).upper():
            return None
        raise
