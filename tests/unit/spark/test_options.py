"""Options: the JVM connector's names, defaults, refusals and words."""

from __future__ import annotations

import logging
import pickle
import re

import pytest

from aiokq import TopicPartition
from aiokq.errors import ConfigError
from aiokq.spark.limits import ByOffset, ByTime, ByTimeEach
from aiokq.spark.options import ReadOptions, frame_columns
from aiokq.spark.strategy import Assign, Pattern, Subscribe

BASE = {"kafka.bootstrap.servers": "host:9092", "subscribe": "t"}


def batch(**options: str) -> ReadOptions:
    return ReadOptions.parse(BASE | options, streaming=False)


def stream(**options: str) -> ReadOptions:
    return ReadOptions.parse(BASE | options, streaming=True)


def told(error: pytest.ExceptionInfo[ConfigError]) -> str:
    """Return the message of the JVM connector, without the name of the option."""
    return re.sub(r"^option [A-Za-z]+: ", "", str(error.value))


def without(*names: str) -> dict[str, str]:
    return {name: value for name, value in BASE.items() if name not in names}


def test_a_batch_begins_at_the_beginning_and_a_stream_at_the_end() -> None:
    """The two defaults differ; a mix-up would skip all records or read them again."""
    assert batch().starting == ByOffset(-2)
    assert stream().starting == ByOffset(-1)
    assert batch().ending == ByOffset(-1)


def test_defaults_are_the_jvm_connectors() -> None:
    """A job that sets no options behaves as before."""
    options = stream()

    assert options.fail_on_data_loss
    assert not options.include_headers
    assert options.max_trigger_delay == 900
    assert options.poll_timeout_ms == 120_000
    assert (options.fetch_offset_num_retries, options.fetch_offset_retry_interval_ms) == (3, 1000)
    assert options.isolation_level == "read_uncommitted"


def test_names_are_found_in_any_case() -> None:
    """Spark's options are case-insensitive."""
    options = ReadOptions.parse(
        {"KAFKA.Bootstrap.Servers": "host:9092", "SUBSCRIBE": "t", "STARTINGOFFSETS": "Latest"},
        streaming=True,
    )

    assert options.strategy == Subscribe(("t",))
    assert options.starting == ByOffset(-1)
    assert options.kafka == {"bootstrap.servers": "host:9092"}


@pytest.mark.parametrize(
    ("option", "value", "strategy"),
    [
        ("subscribe", " a, b ,,a", Subscribe(("a", "b"))),
        ("subscribePattern", " a.* ", Pattern("a.*")),
        ("assign", '{"a":[1,0]}', Assign((TopicPartition("a", 0), TopicPartition("a", 1)))),
    ],
)
def test_each_way_to_choose_partitions_is_read(option: str, value: str, strategy: object) -> None:
    """Blanks and repetitions are allowed."""
    options = ReadOptions.parse(without("subscribe") | {option: value}, streaming=False)

    assert options.strategy == strategy


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            without("subscribe"),
            "One of the following options must be specified for Kafka source: subscribe, "
            "subscribepattern, assign. See the docs for more details.",
        ),
        (
            BASE | {"assign": '{"t":[0]}'},
            "Only one of the following options can be specified for Kafka source: subscribe, "
            "subscribepattern, assign. See the docs for more details.",
        ),
        (
            BASE | {"subscribe": " , "},
            "No topics to subscribe to as specified value for option 'subscribe' is ' , '",
        ),
        (
            without("subscribe") | {"assign": "t"},
            "No topicpartitions to assign as specified value for option 'assign' is 't'",
        ),
        (
            without("subscribe") | {"assign": '{"t":0}'},
            'Expected e.g. {"topicA":[0,1],"topicB":[0,1]}, got {"t":0}',
        ),
        (
            without("subscribe") | {"subscribePattern": " "},
            "Pattern to subscribe is empty as specified value for option 'subscribePattern' is ' '",
        ),
        (
            without("kafka.bootstrap.servers"),
            "Option 'kafka.bootstrap.servers' must be specified for configuring Kafka consumer",
        ),
        (
            BASE | {"startingOffsets": '{"t":[0]}'},
            'Expected e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}, got {"t":[0]}',
        ),
        (BASE | {"startingTimestamp": "x"}, "Expected a single long value, got x"),
        (
            BASE | {"kafka.enable.auto.commit": "true"},
            "Kafka option 'enable.auto.commit' is not supported",
        ),
        (
            BASE | {"kafka.interceptor.classes": "x"},
            "Kafka option 'interceptor.classes' is not supported",
        ),
        (BASE | {"minPartitions": "0"}, "minPartitions must be positive"),
        (BASE | {"maxRecordsPerPartition": "0"}, "maxrecordsperpartition must be positive"),
    ],
)
def test_what_the_jvm_connector_refuses_is_refused_in_its_words(
    options: dict[str, str], message: str
) -> None:
    """Users search for these texts."""
    for streaming in (False, True):
        with pytest.raises(ConfigError) as error:
            ReadOptions.parse(options, streaming=streaming)
        assert told(error) == message


@pytest.mark.parametrize("name", ["auto.offset.reset", "key.deserializer", "value.deserializer"])
def test_kafka_options_that_would_change_what_is_read_are_refused(name: str) -> None:
    """Each message says what to use instead."""
    with pytest.raises(ConfigError, match=f"Kafka option '{name}' is not supported") as error:
        batch(**{f"kafka.{name}": "x"})
    assert "nstead" in str(error.value) or "DataFrame operations" in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"startingOffsets": "latest"},
            "starting offset can't be latest for batch queries on Kafka",
        ),
        (
            {"startingOffsets": '{"t":{"0":-1}}'},
            "startingOffsets for t-0 can't be latest for batch queries on Kafka",
        ),
        (
            {"endingOffsets": "Earliest"},
            "ending offset can't be earliest for batch queries on Kafka",
        ),
        (
            {"endingOffsets": '{"t":{"1":-2}}'},
            "ending offset for t-1 can't be earliest for batch queries on Kafka",
        ),
        (
            {"startingOffsets": '{"t":{"0":7}}', "endingOffsets": '{"t":{"0":5}}'},
            "The specified start offset 7 is greater than the end offset 5 for topic t "
            "partition 0.",
        ),
        (
            {
                "startingOffsetsByTimestamp": '{"t":{"0":7}}',
                "endingOffsetsByTimestamp": '{"t":{"0":5}}',
            },
            "The specified start timestamp 7 is greater than the end timestamp 5 for topic t "
            "partition 0.",
        ),
    ],
)
def test_limits_that_a_batch_cannot_have_are_refused(options: dict[str, str], message: str) -> None:
    """With the messages of the JVM connector."""
    with pytest.raises(ConfigError) as error:
        batch(**options)
    assert told(error) == message


def test_starts_and_ends_must_be_of_the_same_partitions() -> None:
    """Otherwise some partitions would have no end."""
    with pytest.raises(ConfigError, match="should have the same topic-partitions"):
        batch(startingOffsets='{"t":{"0":1}}', endingOffsets='{"t":{"0":5,"1":5}}')


def test_special_offsets_compare_with_nothing() -> None:
    """-2 to 5 and 5 to -1 are allowed."""
    options = batch(startingOffsets='{"t":{"0":-2,"1":5}}', endingOffsets='{"t":{"0":5,"1":-1}}')

    assert options.ending == ByOffset({TopicPartition("t", 0): 5, TopicPartition("t", 1): -1})


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("endingOffsets", "ending offset not valid in streaming queries"),
        ("endingOffsetsByTimestamp", "ending timestamp not valid in streaming queries"),
    ],
)
def test_a_stream_has_no_end(option: str, message: str) -> None:
    """Ignoring the option silently would be worse."""
    with pytest.raises(ConfigError) as error:
        stream(**{option: '{"t":{"0":5}}'})
    assert told(error) == message


def test_of_several_starts_the_first_in_sparks_order_counts() -> None:
    """The order is: one timestamp, timestamps by partition, offsets."""
    offsets = {"startingOffsets": "earliest"}
    each = offsets | {"startingOffsetsByTimestamp": '{"t":{"0":5}}'}

    assert batch(**offsets).starting == ByOffset(-2)
    assert batch(**each).starting == ByTimeEach({TopicPartition("t", 0): 5})
    assert batch(**each, startingTimestamp="7").starting == ByTime(7)


def test_a_smallest_batch_above_the_largest_is_refused() -> None:
    """Such a stream would never run a batch."""
    with pytest.raises(
        ConfigError,
        match=r"The value of minOffsetPerTrigger\(5\) is higher than the "
        r"maxOffsetsPerTrigger\(4\)\.",
    ):
        stream(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="4")


def test_limits_of_streams_are_ignored_in_batches_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As in the JVM connector."""
    with caplog.at_level(logging.WARNING):
        batch(maxOffsetsPerTrigger="5")

    assert "maxOffsetsPerTrigger option ignored in batch queries" in caplog.text


@pytest.mark.parametrize(
    ("text", "seconds"), [("10s", 10), ("250ms", 0.25), ("2m", 120), ("1h", 3600), ("40", 0.04)]
)
def test_durations_are_read_as_spark_reads_them(text: str, seconds: float) -> None:
    """A number alone is milliseconds."""
    assert stream(maxTriggerDelay=text).max_trigger_delay == seconds


@pytest.mark.parametrize(
    "option",
    [
        {"maxTriggerDelay": "soon"},
        {"failOnDataLoss": "maybe"},
        {"minPartitions": "many"},
        {"startingOffsetsByTimestampStrategy": "earliest"},
        {"startingOffsets": "{"},
        {"startingOffsetsByTimestamp": "7"},
        {"startingTimestamp": "noon"},
        {"endingOffsets": "latest"},
        {"endingOffsetsByTimestamp": '{"t":{"0":5}}'},
        {"columns": "key,colour"},
        {"columns": ","},
        {"commitGroup": " "},
        {"kafka.isolation.level": "committed"},
        {"maxTasks": "-1"},
        {"kafka.max.partition.fetch.bytes": "0"},
    ],
)
def test_a_value_of_the_wrong_form_is_refused_by_the_options_name(option: dict[str, str]) -> None:
    """The error says which of twenty options is wrong."""
    with pytest.raises(ConfigError, match=next(iter(option))):
        stream(**option)


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": "latest"},
        {"startingOffsets": '{"t":{"0":-1}}'},
        {"endingOffsets": "earliest"},
        {"endingOffsets": '{"t":{"0":-2}}'},
        {"endingOffsets": '{"t":{"0":5}}', "startingOffsets": '{"t":{"0":7}}'},
        {"endingOffsets": '{"t":{"1":5}}', "startingOffsets": '{"t":{"0":7}}'},
    ],
)
def test_limits_that_do_not_fit_are_refused_by_the_options_name(options: dict[str, str]) -> None:
    """The message of the JVM connector does not say which option is meant."""
    with pytest.raises(ConfigError, match=f"option {next(iter(options))}: "):
        batch(**options)


def test_partitions_of_the_wrong_form_are_refused_by_the_options_name() -> None:
    """As for the other options."""
    with pytest.raises(ConfigError, match="option assign: Expected"):
        ReadOptions.parse(without("subscribe") | {"assign": '{"t":'}, streaming=True)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("startingOfset", "did you mean startingOffsets"),
        ("path", "subscribe"),
        ("bootstrap.servers", "kafka.bootstrap.servers"),
        ("colour", "there is no option 'colour'"),
    ],
)
def test_an_unknown_option_is_refused_with_a_hint(name: str, hint: str) -> None:
    """A misspelt startingOffsets would silently start the read elsewhere."""
    with pytest.raises(ConfigError, match=hint):
        batch(**{name: "x"})


def test_options_of_the_sink_do_no_harm() -> None:
    """Many jobs use one dictionary of options for reads and writes."""
    batch(topic="out")


def test_only_streams_commit() -> None:
    """A batch has no progress to commit."""
    assert stream(commitGroup="g").commit_group == "g"
    with pytest.raises(ConfigError, match="commitGroup"):
        batch(commitGroup="g")


def test_columns_are_named_in_any_case_and_order() -> None:
    """The result has the spelling of the record columns."""
    assert batch(columns="Value, timestamptype").all_columns == ("value", "timestampType")
    assert frame_columns({"includeHeaders": "true"})[-1] == "headers"
    assert "headers" not in frame_columns({})


def test_options_can_be_sent_to_workers() -> None:
    """Options are pickled with each task."""
    options = stream(startingOffsets='{"t":{"0":5}}')

    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("startingTimestamp", "-1", "the timestamp -1 is before 1970"),
        ("endingTimestamp", "-2", "the timestamp -2 is before 1970"),
        ("startingOffsetsByTimestamp", '{"t":{"0":-3}}', "the timestamp -3 of t-0 is before 1970"),
        ("startingOffsets", '{"t":{"0":-5}}', "-5 of t-0 is not an offset"),
        ("endingOffsets", '{"t":{"0":-3}}', "-3 of t-0 is not an offset"),
    ],
)
def test_numbers_below_zero_that_mean_nothing_are_refused(name: str, text: str, told: str) -> None:
    """Brokers take negative times for special values: -1, meant as "all", is the end of the log."""
    with pytest.raises(ConfigError, match=f"option {name}: {told}"):
        batch(**{name: text})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("startingTimestamp", str(2**63)),
        ("startingOffsetsByTimestamp", f'{{"t":{{"0":{2**63}}}}}'),
        ("startingOffsets", f'{{"t":{{"0":{2**63}}}}}'),
        ("assign", f'{{"t":[{2**63}]}}'),
    ],
)
def test_numbers_that_kafka_has_no_room_for_are_refused(name: str, text: str) -> None:
    """Regression: they failed when a request was encoded, and the message named no option."""
    given = {"subscribe": "t", name: text}
    if name == "assign":
        del given["subscribe"]
    with pytest.raises(ConfigError, match=f"option {name}: Expected"):
        ReadOptions.parse({"kafka.bootstrap.servers": "host:9092", **given}, streaming=False)
