"""Options and columns of the sink; some errors have the texts of Spark's own connector."""

from __future__ import annotations

import pickle

import pytest

from aiokq.errors import ConfigError
from aiokq.spark.write_options import WriteColumns, WriteOptions

types = pytest.importorskip("pyspark.sql.types")
SERVERS = {"kafka.bootstrap.servers": "broker:9092"}


def columns(schema: str, topic: str | None = None) -> WriteColumns:
    """Return the columns of a schema given as a list of names and types, without a session."""
    kinds = {
        "string": types.StringType(),
        "binary": types.BinaryType(),
        "int": types.IntegerType(),
        "bigint": types.LongType(),
        "timestamp": types.TimestampType(),
        "headers": types.ArrayType(
            types.StructType()
            .add("key", types.StringType(), False)
            .add("value", types.BinaryType())
        ),
    }
    struct = types.StructType()
    for column in schema.split(", "):
        name, kind = column.split(" ")
        struct.add(name, kinds[kind])
    return WriteColumns.of(struct, topic)


def test_names_are_taken_in_any_case_and_go_to_tasks() -> None:
    """Spark lower-cases the names for some callers, and pickles the writer."""
    options = WriteOptions.parse({"TOPIC": "t", "KAFKA.Linger.MS": "7", **SERVERS}, streaming=True)

    assert options.topic == "t"
    assert options.kafka == {"linger.ms": "7", "bootstrap.servers": "broker:9092"}
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"kafka.key.serializer": "x"}, "Kafka option 'key.serializer' is not supported as keys"),
        ({"kafka.value.serializer": "x"}, "Kafka option 'value.serializer' is not supported as"),
        ({"kafka.interceptor.classes": "x"}, "'interceptor.classes' is not supported"),
        ({"kafka.transactional.id": "x"}, "kafka.transactional.id: a job cannot set"),
        ({"kafka.transactional_id": "x"}, "kafka.transactional.id: a job cannot set"),
        ({"kafka.acks": "2"}, "kafka.acks: must be 0, 1, -1 or 'all'"),
        ({"kafka.compression.type": "rar"}, "rar"),
        ({"kafka.partitioner.class": "x"}, "partitioner.class"),
        ({"kafka.lingerms": "1"}, "did you mean kafka.linger.ms"),
        ({"exactlyOnce": "true", "kafka.acks": "1"}, "kafka.transactional.id conflicts with"),
        ({"exactlyOnce": "true", "ledgerTopic": "t", "topic": "t"}, "option ledgerTopic: it must"),
        ({"exactlyOnce": "true", "ledgerTopic": ""}, "option ledgerTopic: it must name a topic"),
        ({"exactlyOnce": "yes"}, "option exactlyOnce"),
        ({"topik": "x"}, "there is no option 'topik': did you mean topic"),
    ],
)
def test_what_is_refused_is_named(given: dict[str, str], text: str) -> None:
    """In the driver: a task would fail four times, with a page of traceback each."""
    with pytest.raises(ConfigError, match=text):
        WriteOptions.parse({**SERVERS, **given}, streaming=True)


def test_servers_are_needed() -> None:
    """Otherwise the first failing task would report it."""
    with pytest.raises(ConfigError, match=r"Option 'kafka\.bootstrap\.servers' must be specified"):
        WriteOptions.parse({"topic": "t"}, streaming=False)


def test_exactly_once_may_be_refused_by_the_job_too() -> None:
    """False is the same as the default."""
    options = WriteOptions.parse({"exactlyOnce": "false", **SERVERS}, streaming=False)

    assert options == WriteOptions.parse(SERVERS, streaming=True)


def test_a_batch_write_is_not_written_exactly_once() -> None:
    """A batch write has no query id, so the sink could not recognise a job that is run again."""
    given = {"exactlyOnce": "TRUE", "topic": "t", **SERVERS}

    assert WriteOptions.parse(given, streaming=True).ledger == "aiokq-spark-ledger"
    with pytest.raises(ConfigError, match=r"a batch write has no query id.*use writeStream"):
        WriteOptions.parse(given, streaming=False)


def test_columns_are_found_where_they_are_and_others_are_not_written() -> None:
    """A frame that was read from a topic also has the column offset."""
    found = columns(
        "offset bigint, value binary, key string, headers headers, timestamp timestamp, topic "
        "string, partition int"
    )

    assert found == WriteColumns(value=1, key=2, headers=3, timestamp=4, topic=5, partition=6)


def test_the_option_hides_the_column_topic_of_whatever_type() -> None:
    """As in Spark's own connector."""
    assert columns("value string, topic int", "t") == WriteColumns(value=0)


@pytest.mark.parametrize(
    ("schema", "topic", "text"),
    [
        ("value string", None, "topic option required when no 'topic' attribute is present. Use"),
        ("key string", "t", "Required attribute 'value' not found"),
        ("value int", "t", r"value attribute unsupported type int. value must be a\(n\) string or"),
        ("value string, key int", "t", "key attribute unsupported type int"),
        ("value string, partition bigint", "t", "partition attribute unsupported type bigint"),
        ("value string, headers string", "t", r"must be a\(n\) array<struct<key:string,value:bina"),
        ("value string, topic int", None, "topic attribute unsupported type int"),
        ("value string, timestamp string", "t", "timestamp attribute unsupported type string"),
        ("Value string", "t", "Required attribute 'value' not found"),
    ],
)
def test_columns_of_other_types_are_refused(schema: str, topic: str | None, text: str) -> None:
    """With Spark's messages, which users can search for."""
    with pytest.raises(ConfigError, match=text):
        columns(schema, topic)
