"""Options of a load: what is refused, by the name of the option."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from aiokq.errors import ConfigError
from aiokq.spark.loading.failures import one_line_of
from aiokq.spark.loading.options import LoadOptions, OptionError
from aiokq.spark.loading.table_factory import require_extras


@pytest.mark.parametrize(
    ("changes", "option", "problem"),
    [
        ({"topics": ()}, "topics", "give either names of topics"),
        ({"topics": "t"}, "topics", "a tuple"),
        ({"topics": ("a,b",)}, "topics", "'a,b' is not a topic name"),
        ({"topics": ("t ",)}, "topics", "'t ' is not a topic name"),
        ({"topics": ("..",)}, "topics", "'..' is not a topic name"),
        ({"topics": (), "topics_pattern": " "}, "topics_pattern", "is empty"),
        ({"topics_pattern": "x"}, "topics", "or a pattern"),
        ({"topics": (), "topics_pattern": "("}, "topics_pattern", "not a regular expression"),
        ({"to": "s3://bucket"}, "to", "a load to s3:// is not supported"),
        ({"to": "delta://"}, "to", "the name of a directory is missing"),
        ({"checkpoint": "s3://bucket/x"}, "checkpoint", "s3://bucket/x: a directory is needed"),
        ({"dead_letter": "s3://bucket/x"}, "dead_letter", "a directory is needed"),
        ({"to": "/"}, "to", "the name of a directory is missing"),
        ({"checkpoint": "x/c"}, "checkpoint", "readers of the target"),
        ({"checkpoint": "x"}, "checkpoint", "/x: the target needs a directory of its own"),
        ({"dead_letter": "x", "value_format": "text"}, "dead_letter", "a directory of its own"),
        ({"dead_letter": "x/bad", "value_format": "text"}, "dead_letter", "would also read"),
        ({"dead_letter": ".", "value_format": "text"}, "dead_letter", "would also read the target"),
        (
            {"dead_letter": "y", "checkpoint": "y", "value_format": "text"},
            "dead_letter",
            "the checkpoint's directory",
        ),
        (
            {"topics": ("__HIVE_DEFAULT_PARTITION__",), "partition_by": ("topic",)},
            "partition_by",
            "as null; leave out topic",
        ),
        ({"to": "delta://x", "format": "iceberg"}, "format", "delta://x, whose format is delta"),
        ({"to": "delta:///a%20b"}, "to", "must not contain % ? or #"),
        ({"to": "/a#b", "format": "iceberg"}, "to", "must not contain % ? or #"),
        ({"format": "csv"}, "format", "'csv' is not one of parquet, delta, iceberg"),
        ({"partition_by": ("hour",)}, "partition_by", "neither topic nor date"),
        ({"partition_by": ("date", "date")}, "partition_by", "twice"),
        ({"rows_per_file": 0}, "rows_per_file", "must be at least 1"),
        ({"rows_per_file": 9, "format": "delta"}, "rows_per_file", "only format parquet"),
        ({"records_per_batch": 0}, "records_per_batch", "must be at least 1"),
        ({"every": -1.0}, "every", "must be 0"),
        ({"compression": "lzo"}, "compression", "not one of zstd"),
        ({"value_format": "json"}, "value_schema", "needs a schema"),
        ({"value_schema": "id int"}, "value_schema", "only json and avro"),
        ({"confluent_prefix": True}, "confluent_prefix", "loaded unchanged"),
        ({"dead_letter": "y"}, "dead_letter", "not decoded"),
        ({"table": "a.b"}, "table", "only format iceberg"),
        ({"table": "b", "format": "iceberg"}, "table", "NAMESPACE.NAME"),
    ],
)
def test_what_makes_no_sense_is_refused(
    changes: dict[str, object], option: str, problem: str
) -> None:
    """They are refused before the cluster is asked."""
    given: dict[str, object] = {"to": "x", "topics": ("t",)}

    with pytest.raises(OptionError) as caught:
        LoadOptions(**(given | changes))  # type: ignore[arg-type]

    assert caught.value.option == option
    assert problem in caught.value.problem


@pytest.mark.parametrize(
    ("pattern", "option"), [("a|b.*", "^(?:a|b.*)$"), ("(?i)(?x)a | b", "(?i)(?x)^(?:a | b)$")]
)
def test_a_pattern_is_of_whole_names(pattern: str, option: str) -> None:
    """Spark's own connector also matches "data" with the pattern "a"."""
    options = LoadOptions(to="x", topics=(), topics_pattern=pattern)

    assert options.read_options()["subscribePattern"] == option
    re.compile(option)


def test_the_target_may_say_the_format() -> None:
    """As addresses of tables do elsewhere."""
    options = LoadOptions(to="delta:///lake/t", topics=("t",))

    assert (options.target_format, options.root) == ("delta", Path("/lake/t"))
    assert options.dead_letter_root == Path("/lake/t-dead-letter")
    assert LoadOptions(to="file:///lake/t", topics=("t",)).target_format == "parquet"
    options = LoadOptions(to="/lake/t", topics=("t",), checkpoint="file:///query/t")
    assert options.checkpoint_root == Path("/query/t")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call "
            "last):\n  File \"x.py\", line 1, in y\naiokq.spark.data_loss.DataLoss: Some data may "
            "have been lost\nbecause of retention.\n\tat org.apache.spark.X(Y.scala:1)",
            "Some data may have been lost because of retention.",
        ),
        (
            "Job aborted: PythonException: Traceback:\n  File \"w.py\"\nModuleNotFoundError: No "
            "module named 'aiokq'\n\tat org.apache",
            "an executor has no package aiokq: pip install 'aiokq[spark]' for the Python of the "
            "executors (PYSPARK_PYTHON)",
        ),
        (
            "Traceback:\n  File \"w.py\"\nOSError: [Errno 28] No space left on device: '/x'\n\tat "
            "org.apache",
            "[Errno 28] No space left on device: '/x'",
        ),
        (
            "Traceback:\naiokq.errors.ConfigError: option maxTasks: no\n\nDuring handling of the "
            "above exception, another exception occurred:\n\nTraceback:\nUnboundLocalError: cannot",
            "option maxTasks: no",
        ),
        (
            "[STREAM_FAILED] Query [id = 3c21, runId = 689a] terminated with exception: Python "
            "worker failed to connect back. SQLSTATE: XXKST",
            "Python worker failed to connect back.",
        ),
        ("Something else\nand more", "Something else"),
        (
            "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n: "
            "org.apache.spark.SparkException: Could not parse Master URL: 'x'\n\tat org.apache.X",
            "Could not parse Master URL: 'x'",
        ),
    ],
)  # fmt: skip
def test_what_spark_says_is_one_line(text: str, line: str) -> None:
    """Spark's own messages are tracebacks of two languages."""
    assert one_line_of(RuntimeError(text)) == line


@pytest.mark.parametrize(
    ("changes", "extra"),
    [
        ({"format": "delta"}, "'aiokq[spark,delta]'"),
        ({"format": "iceberg"}, "'aiokq[spark,iceberg]'"),
        ({"value_format": "avro", "value_schema": '"long"'}, "'aiokq[spark,avro]'"),
    ],
)
def test_an_extra_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], extra: str
) -> None:
    """The message says what to type, before Spark is started."""
    given: dict[str, object] = {"to": "x", "topics": ("t",)}
    options = LoadOptions(**(given | changes))  # type: ignore[arg-type]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(ConfigError, match=re.escape(f"pip install {extra}")):
        require_extras(options)
