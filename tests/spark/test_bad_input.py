"""Errors in a job or in its environment: the driver reports them, and no data are lost.

Each stream is resumed from its checkpoint afterwards, and then has read the log exactly once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from pyspark.errors import PySparkException

from tests.peers.apache_kafka import ApacheKafka, apache_kafka, why_absent
from tests.spark.conftest import ROOT
from tests.spark.executors import hide_aiokq
from tests.spark.logs import places
from tests.spark.streams import PATIENCE, Stream, ended, wait_for
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)


def refusals(topic: str) -> list[tuple[dict[str, str], str]]:
    """Return options of a stream that has begun, and the driver's error messages."""
    return [
        ({"startingOfsets": "latest"}, "did you mean startingOffsets"),
        ({"kafka.colour": "red"}, "there is no option 'kafka.colour'"),
        (
            {"assign": f'{{"{topic}":[0]}}', "subscribe": topic},
            "Only one of the following options can be specified for Kafka source: subscribe, "
            "subscribepattern, assign",
        ),
        ({"assign": "{"}, "option assign: Expected e.g."),
        ({"startingOffsets": '{"t":'}, "option startingOffsets: Expected e.g."),
        ({"endingOffsets": "latest"}, "option endingOffsets: "),
        ({"maxOffsetsPerTrigger": "many"}, "option maxOffsetsPerTrigger: "),
        ({"columns": "key,colour"}, "columns"),
        ({"kafka.isolation.level": "none"}, "option kafka.isolation.level: "),
        ({"kafka.auto.offset.reset": "latest"}, "Kafka option 'auto.offset.reset' is not"),
    ]


@pytest.mark.parametrize("some", [2, pytest.param(None, marks=pytest.mark.full, id="all")])
def test_a_stream_that_is_refused_is_resumed_with_better_options(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path, some: int | None
) -> None:
    """Refused options leave nothing in the checkpoint."""
    topics.create(topic)
    topics.fill(topic, 3)
    stream = Stream(spark, topics, topic, tmp_path / "query")
    stream.available_now(startingOffsets="earliest")
    done = stream.done()
    topics.fill(topic, 3)

    for options, message in refusals(topic)[:some]:
        told = stream.fails(**options)
        assert message in told, told
        assert stream.planned() == stream.done() == done, options
    stream.available_now()

    assert stream.rows() == places(topics, topic)


@pytest.mark.full
def test_a_stream_from_beyond_the_end_is_refused_before_it_begins(
    spark: SparkSession, either: Topics, topic: str, tmp_path: Path
) -> None:
    """In the checkpoint the offset would fail the first batch, whatever the options say later."""
    either.create(topic)
    either.fill(topic, 3)
    beyond = {"startingOffsets": json.dumps({topic: {"0": 9}})}
    stream = Stream(spark, either, topic, tmp_path / "query")

    told = stream.fails(**beyond)

    assert f"option startingOffsets: {topic}-0 ends at 3, before 9" in told, told
    assert stream.planned() == -1
    stream.available_now(startingOffsets="earliest")
    assert stream.rows() == places(either, topic)
    tolerant = Stream(spark, either, topic, tmp_path / "tolerant")
    tolerant.available_now(failOnDataLoss="false", **beyond)
    either.send(topic, [b"more"])
    tolerant.available_now()
    assert tolerant.rows() == places(either, topic)[3:]


@pytest.mark.full
def test_a_topic_that_is_not_there_is_named_and_read_when_it_is(
    spark: SparkSession, either: Topics, topic: str, tmp_path: Path
) -> None:
    """The request neither creates the topic nor takes it for an empty one."""
    stream = Stream(spark, either, topic, tmp_path / "query")

    told = stream.fails(startingOffsets="earliest")

    assert topic in told, told
    assert stream.planned() == -1
    either.create(topic)
    either.fill(topic, 3)
    stream.available_now(startingOffsets="earliest")
    assert stream.rows() == places(either, topic)


@pytest.mark.full
def test_a_topic_that_is_deleted_ends_the_stream_by_its_name(
    spark: SparkSession, either: Topics, topic: str, tmp_path: Path
) -> None:
    """The topic may have been deleted by mistake; waiting forever would hide it."""
    either.create(topic)
    either.fill(topic, 3)
    stream = Stream(spark, either, topic, tmp_path / "query")
    query = stream.writer(startingOffsets="earliest").start()
    try:
        wait_for(lambda: len(stream.rows()) == 3)
        either.delete(topic)
        told = ended(query)
    finally:
        query.stop()

    assert topic in told, told


# -- permissions

LOGIN = ("anna", "only-anna-knows")


class Guarded(NamedTuple):
    """A node of Apache Kafka with authentication, and with an authorizer that denies by default."""

    kafka: ApacheKafka
    topics: Topics

    def options(self, password: str = LOGIN[1]) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": f"127.0.0.1:{self.kafka.listener_ports[1]['SASL']}",
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.bootstrap.timeout.ms": "10000",
            "kafka.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule "
            f'required username="{LOGIN[0]}" password="{password}";',
        }

    def allow(self, topic: str, *operations: str) -> None:
        from confluent_kafka.admin import (
            AclBinding,
            AclOperation,
            AclPermissionType,
            AdminClient,
            ResourcePatternType,
            ResourceType,
        )

        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers})
        for operation in operations:
            binding = AclBinding(
                ResourceType.TOPIC,
                topic,
                ResourcePatternType.LITERAL,
                f"User:{LOGIN[0]}",
                "*",
                AclOperation[operation],
                AclPermissionType.ALLOW,
            )
            for future in admin.create_acls([binding]).values():
                future.result(30)


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    reason = why_absent()
    if reason is not None:
        pytest.skip(f"APACHE KAFKA IS NOT TESTED: {reason}")
    login = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'user_{LOGIN[0]}="{LOGIN[1]}";'
    )
    properties = {
        "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super_users": "User:ANONYMOUS",
        "sasl_enabled_mechanisms": "PLAIN",
        "listener_name_sasl_plain_sasl_jaas_config": login,
    }
    with apache_kafka(1, heap="384M", listeners={"SASL": "SASL_PLAINTEXT"}, **properties) as kafka:
        yield Guarded(kafka, Topics(kafka.bootstrap_servers))


@pytest.mark.kafka
@pytest.mark.full
def test_who_may_not_is_told_what_and_reads_when_it_is_allowed(
    spark: SparkSession, guarded: Guarded, topic: str, tmp_path: Path
) -> None:
    """A wrong password, no DESCRIBE, no READ: the driver fails, and nothing is lost."""
    guarded.topics.create(topic)
    guarded.topics.fill(topic, 3)
    stream = Stream(spark, guarded.topics, topic, tmp_path / "query")
    earliest = {"startingOffsets": "earliest"}

    told = stream.fails(**guarded.options("guessed"), **earliest)
    assert "credentials" in told, told
    assert "guessed" not in told
    told = stream.fails(**guarded.options(), **earliest)
    assert "TOPIC_AUTHORIZATION_FAILED" in told, told
    assert topic in told
    assert stream.planned() == -1
    guarded.allow(topic, "DESCRIBE")
    told = stream.fails(**guarded.options(), **earliest)
    assert "TOPIC_AUTHORIZATION_FAILED" in told, told
    assert topic in told
    assert (stream.planned(), stream.done()) == (0, -1)
    guarded.allow(topic, "READ")
    stream.available_now(**guarded.options(), **earliest)

    assert stream.rows() == places(guarded.topics, topic)


@pytest.mark.kafka
@pytest.mark.full
def test_who_may_not_write_is_told_so(spark: SparkSession, guarded: Guarded, topic: str) -> None:
    """The error names the topic; WRITE on any topic implies IDEMPOTENT_WRITE on the cluster."""
    guarded.topics.create(topic)
    guarded.allow(topic, "DESCRIBE")
    frame = spark.range(3).selectExpr("cast(id as string) as value")

    writer = frame.write.format("aiokq").mode("append").options(topic=topic, **guarded.options())
    with pytest.raises(PySparkException) as error:
        writer.save()

    assert "authorization failed" in str(error.value).lower(), error.value
    assert topic in str(error.value)
    assert places(guarded.topics, topic) == []


# -- executors

READING = """
import json, sys
from pyspark.sql import SparkSession

order = json.loads(sys.argv[1])
spark = (
    SparkSession.builder.master("local[1,2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.memory", "512m")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
frame = spark.read.format("aiokq").options(**order).load()
try:
    print("rows", frame.count())
except Exception as error:
    print("error", error)
"""


@pytest.mark.full
def test_an_executor_without_the_package_is_told_of_in_the_driver(
    topics: Topics, topic: str, tmp_path: Path, spark: SparkSession
) -> None:
    """The package is installed for the driver only: planning works, reading does not."""
    topics.create(topic)
    topics.fill(topic, 3)
    order = {"kafka.bootstrap.servers": topics.bootstrap_servers, "subscribe": topic}

    def read(*paths: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", READING, json.dumps(order)],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([*paths, str(ROOT)]),
                "PYSPARK_PYTHON": sys.executable,
            },
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        return done.stdout

    told = read(str(hide_aiokq(tmp_path)))

    assert "error" in told, told
    assert "No module named 'aiokq'" in told
