"""`load`: copies topics to a directory of files by a Spark query, and returns a summary."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from aiokq.errors import ConfigError, KafkaError
from aiokq.spark.loading.batches import Batches
from aiokq.spark.loading.checkpoint import Checkpoint
from aiokq.spark.loading.failures import LoadFailed, one_line_of, unwritable
from aiokq.spark.loading.iceberg_table import catalog_identity
from aiokq.spark.loading.option_errors import in_words_of_load
from aiokq.spark.loading.options import LoadOptions
from aiokq.spark.loading.preflight import Preflight, look
from aiokq.spark.loading.session import spark_session
from aiokq.spark.loading.summary import Loaded, LoadProgress, LoadSummary
from aiokq.spark.loading.table_factory import codec_of, require_extras, table_of
from aiokq.spark.loading.target import Identity, Target
from aiokq.spark.loading.task_files import TaskSpec
from aiokq.spark.loading.task_files import schema as task_schema
from aiokq.spark.loading.value_schema import ValueSchema
from aiokq.spark.loading.values import ValueDecoder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["load"]

logger = logging.getLogger("aiokq.spark")

OnProgress: TypeAlias = Callable[[LoadProgress], None]

LOOK_AGAIN: Final = 0.2
"""Seconds between two checks of the stop event."""

START_PATIENCE: Final = 600.0
"""Seconds after which consecutive late starts of Python workers (see `LATE`) end the load.

The seconds count from the first late start. Before this limit, each late start restarts the query.
"""

START_PAUSES: Final = (1.0, 30.0)
"""First and longest pause before a retry, in seconds; the pause doubles each time."""

HELD: Final = 120.0
"""A query that runs longer than this number of seconds ends a series of late starts.

A query that has loaded something also ends the series. See `START_PATIENCE`.
"""

LATE: Final = "Python worker failed to connect back"
"""Spark's message if a Python worker takes more than ten seconds to start, as on a busy machine;
Spark has no setting for this limit.
"""

COMMIT_PATIENCE: Final = 5.0
"""Maximum seconds that a stop waits until Spark has logged that the last batch is done."""


def load(
    options: LoadOptions,
    *,
    spark: SparkSession | None = None,
    progress: OnProgress | None = None,
    stop: threading.Event | None = None,
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
    quiet: bool = True,
) -> LoadSummary:
    """Load topics to a directory of files, each record exactly once.

    The call blocks. A repeated call continues the load, even after a kill of the process. Without
    ``available_now`` the load runs until `stop` is set.

    Args:
        spark: the session; default: the active or default session, or a new session.
        progress: function that is called with the progress at the start and after each batch; not
            always in the caller's thread.
        stop: an event that ends the load after the current batch.
        master: Spark master of a new session.
        conf: Spark settings of a new session.
        quiet: discard what a new session writes to stderr.

    Raises:
        BootstrapFailed: the cluster cannot be reached.
        ConfigError: an option is refused; an `OptionError` names the option.
        KafkaError: a topic does not exist, or may not be read.
        LoadFailed: the load ended before it was done, for example because of a full disk.
    """
    require_extras(options)
    values = ValueSchema(options)
    target = Target.of(options)
    found = look(options, target.checkpoint.positions())
    with (
        target.opened(_identity(options, values, found)),
        _session(spark, master, conf or {}, quiet=quiet) as session,
    ):
        decoder = values.decoder()
        run = _Load(options, target, session, decoder, found, progress, stop or threading.Event())
        return run.run()


@contextlib.contextmanager
def _session(
    spark: SparkSession | None, master: str, conf: Mapping[str, str], *, quiet: bool
) -> Iterator[SparkSession]:
    if spark is None:
        spark = _running_session()
    if spark is not None:
        if not hasattr(spark, "_jvm"):
            raise ConfigError("a load needs a classic session, not one of Spark Connect")
        yield spark
        return
    with spark_session("aiokq load", master=master, conf=conf, quiet=quiet) as session:
        yield session


def _running_session() -> SparkSession | None:
    """Return the active or default session, if any; the load must not stop this session."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkException:
        return None


def _identity(options: LoadOptions, values: ValueSchema, found: Preflight) -> Identity:
    """Return the options and the cluster id, which must be the same in each run of a load."""
    return {
        "version": 1,
        "cluster": found.cluster,
        "topics": None if options.topics_pattern is not None else sorted(options.topics),
        "topics_pattern": options.topics_pattern,
        "format": options.target_format,
        "partition_by": list(options.partition_by),
        "value_format": options.value_format,
        "value_schema": values.identity(),
        "confluent_prefix": options.confluent_prefix,
        "headers": options.headers,
        "read_committed": options.read_committed,
        # All batches of a load are in one table, and their dead letters in one directory.
        "table": options.table,
        "catalog": catalog_identity(options.catalog),
        "dead_letter": None if options.dead_letter is None else str(options.dead_letter_root),
    }


class _Stopped(Exception):
    """A batch began after the stop of the load was requested."""


class _Load:
    """One run of a load."""

    def __init__(
        self,
        options: LoadOptions,
        target: Target,
        spark: SparkSession,
        decoder: ValueDecoder | None,
        found: Preflight,
        on_progress: OnProgress | None,
        stop: threading.Event,
    ) -> None:
        self._options = options
        self._target = target
        self._spark = spark
        self._on_progress = on_progress
        self._stop = stop
        self._total = sum(found.missing.values()) if options.available_now else None
        self._batches = _batches(options, target, decoder)
        self._loaded = Loaded()
        self._failure: BaseException | None = None
        self._at_work = threading.Lock()
        self._stopping = False

    def run(self) -> LoadSummary:
        """Complete prepared batches, then run the query to its end."""
        started = time.monotonic()
        try:
            for manifest in self._batches.recover():
                self._loaded.add(manifest)
        except OSError as error:
            raise self._unwritten(error) from error
        self._report(None)
        query = self._ended_query()
        interrupted = self._stopping and (self._total is None or self._loaded.offsets < self._total)
        return LoadSummary.of(
            self._target.root,
            query,
            self._loaded,
            time.monotonic() - started,
            interrupted=interrupted,
        )

    def _ended_query(self) -> str | None:
        """Run the query to its end; retry if Spark could not start a Python worker in time.

        Returns:
            the query's id; None if no run of the load has started a query yet.

        Raises:
            LoadFailed: the query has failed.
        """
        late, since = 0, 0.0
        pause, longest = START_PAUSES
        while not self._stop.is_set():
            before, begun = self._loaded.offsets, time.monotonic()
            try:
                return self._query()
            except LoadFailed as error:
                if LATE not in str(error) or self._stop.is_set():
                    raise
                now = time.monotonic()
                # Earlier late starts do not count if this query has loaded something, or has run
                # longer than HELD.
                if late == 0 or self._loaded.offsets > before or now - begun > HELD:
                    late, since = 0, now
                late += 1
                if now - since >= START_PATIENCE:
                    raise LoadFailed(
                        f"Spark could not start a Python worker within ten seconds, {late} times "
                        f"in {(now - since) / 60:.0f} minutes: the machine is overloaded, or has "
                        "too little memory; the same call continues the load"
                    ) from error
                logger.warning("restarting the query late=%d error=%s", late, error)
                self._failure = None
            self._stop.wait(min(longest, pause * 2 ** min(late - 1, 10)))
        self._stopping = True
        return self._target.checkpoint.query_id()

    def _query(self) -> str:
        """Run the query once; return its id.

        Raises:
            LoadFailed: the query has failed.
        """
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        try:
            query = self._writer().start()
            try:
                self._wait(query)
                self._raise_last_failure()
                return str(query.id)
            finally:
                if _is_active(query):
                    self._end_or_break_off(query)
        except (PySparkException, Py4JError, ConnectionError) as error:
            raise self._explained(error) from None

    def _writer(self) -> DataStreamWriter:
        from aiokq.spark.loading.task_source import LoadFilesSource
        from aiokq.spark.redaction import REDACTED, redact_secrets
        from aiokq.spark.source import AiokqDataSource
        from aiokq.spark.stream_reader import HAS_LIMITS

        self._spark.dataSource.register(LoadFilesSource)
        redact_secrets(self._spark)
        options = self._options.read_options() | {REDACTED: "true"}
        options["maxTasks"] = str(self._spark.sparkContext.defaultParallelism)
        # PySpark 4.1 has no limits; a batch reads all records.
        if self._options.records_per_batch is not None and HAS_LIMITS:
            options["maxOffsetsPerTrigger"] = str(self._options.records_per_batch)
        frame = self._spark.readStream.format(AiokqDataSource.name()).options(**options).load()
        writer = (
            frame.writeStream.foreachBatch(self._store)
            .queryName(f"aiokq load {self._target.root}")
            .option("checkpointLocation", str(self._target.checkpoint.directory))
        )
        if self._options.available_now:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime=f"{round(self._options.every * 1000)} milliseconds")

    def _raise_last_failure(self) -> None:
        """Raise the error of a batch that failed during a stop; Spark does not report it."""
        if self._failure is not None:
            raise self._explained(self._failure)

    def _store(self, frame: DataFrame, batch: int) -> None:
        with self._at_work:
            if self._stopping:
                raise _Stopped
            try:
                query = self._target.checkpoint.query_id()
                assert query is not None
                offsets = self._target.checkpoint.batch(batch)
                manifest = self._batches.store(batch, query, offsets, frame)
            except BaseException as error:
                self._failure = error
                raise
            self._loaded.add(manifest)
            self._report(batch)

    def _report(self, batch: int | None) -> None:
        if self._on_progress is not None:
            loaded = self._loaded
            self._on_progress(LoadProgress(batch, loaded.offsets, self._total, loaded.rows))

    def _wait(self, query: StreamingQuery) -> None:
        # awaitTermination takes fractions of a second, though its annotation says int.
        while not query.awaitTermination(LOOK_AGAIN):  # type: ignore[arg-type]
            if self._stop.is_set():
                self._end(query)
                return

    def _end_or_break_off(self, query: StreamingQuery) -> None:
        """End the query; if a stop was interrupted (second Ctrl-C), do not wait for the batch."""
        if self._stopping:
            query.stop()
        else:
            self._end(query)

    def _end(self, query: StreamingQuery) -> None:
        """Stop the query after the current batch, so that no work is lost."""
        self._stopping = True
        with self._at_work:
            last = self._loaded.last
        deadline = time.monotonic() + COMMIT_PATIENCE
        checkpoint: Checkpoint = self._target.checkpoint
        while last is not None and not checkpoint.is_committed(last):
            if time.monotonic() > deadline or not query.isActive:
                break
            time.sleep(0.05)
        query.stop()

    def _explained(self, error: BaseException) -> BaseException:
        """Return the error of the failed batch, or else Spark's error in one line."""
        from py4j.protocol import Py4JNetworkError

        failure = self._failure
        if isinstance(failure, KafkaError):
            return failure
        if isinstance(failure, OSError):
            return self._unwritten(failure)
        if isinstance(error, Py4JNetworkError | ConnectionError):
            return LoadFailed(
                "Spark's JVM has ended, killed or out of memory; the same call continues the load"
            )
        return LoadFailed(in_words_of_load(one_line_of(error if failure is None else failure)))

    def _unwritten(self, error: OSError) -> LoadFailed:
        return unwritable(error.filename or self._target.root, error)


def _is_active(query: StreamingQuery) -> bool:
    from py4j.protocol import Py4JError

    try:
        return query.isActive
    except (Py4JError, OSError):  # the JVM and the query have ended
        return False


def _batches(options: LoadOptions, target: Target, decoder: ValueDecoder | None) -> Batches:
    spec = TaskSpec(
        # Delta and Iceberg tables create their own partition directories.
        partition_by=options.partition_by if options.target_format == "parquet" else (),
        compression=codec_of(options),
        rows_per_file=options.rows_per_file,
        headers=options.headers,
        decoder=decoder,
    )
    table = table_of(options, task_schema(spec))
    table.check()
    return Batches(target, table, spec)
