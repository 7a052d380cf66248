"""Dynamic settings of brokers: records, refusals, and the rules of eligible leader replicas."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import pytest

from aiokq.broker.config.settings import broker_settings
from aiokq.broker.metadata.configs.config_changes import changed_broker_configs
from aiokq.broker.metadata.controller.broker_configs import alter_broker_configs, node_settings
from aiokq.broker.metadata.controller.eligible_replicas import clear_elr_records
from aiokq.broker.metadata.image.image import MetadataImage
from aiokq.core.errors import InvalidConfiguration, InvalidRequest
from aiokq.wire.cluster_metadata_records import ClearElrRecord, ConfigRecord
from aiokq.wire.struct import Message
from tests.unit.broker.metadata.kafka_decisions import DECISIONS, NODE, image_of, java_text

OPERATIONS = {"SET": 0, "DELETE": 1, "APPEND": 2, "SUBTRACT": 3}
SET, DELETE = 0, 1

Change = tuple[str, int, str | None]


def alter(
    image: MetadataImage,
    name: str,
    *changes: Change,
    validate_only: bool = False,
    **static: object,
) -> Sequence[Message]:
    _, records = alter_broker_configs(
        image,
        name,
        functools.partial(changed_broker_configs, changes=changes),
        named=[change[0] for change in changes],
        static=broker_settings(static),
        node_id=NODE,
        validate_only=validate_only,
    )
    return records  # type: ignore[return-value]  # no record of aiokq's own


@pytest.mark.parametrize("case", DECISIONS["broker_configs"], ids=lambda case: str(case["change"]))
def test_settings_change_as_in_kafka(case: dict) -> None:
    """Kafka repeats the record of a value that does not change; those are left out here."""
    present = {f"{case['resource']}:{name}": value for name, value in case["present"].items()}
    image = image_of(
        {"metadata.version": 25, "eligible.leader.replicas.version": case["elr"]}, present
    )
    name, operation, value = case["change"]
    change = (name, OPERATIONS[operation], None if operation == "DELETE" else value)
    if case["error"]:
        with pytest.raises(InvalidConfiguration) as refused:
            alter(image, case["resource"], change)
        assert (refused.value.code, refused.value.message) == (case["error"], case["message"])
        return
    records = alter(image, case["resource"], change)
    unchanged = operation == "DELETE" and name not in case["present"]
    assert java_text(records) == ([] if unchanged else case["records"])


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("log.retention.ms", "soon", r": Invalid value for configuration log\.retention\.ms: "),
        ("log.retention.ms", "", "must not be empty"),
        ("log.segment.bytes", "5", "at least 1048576"),
        ("log.cleanup.policy", "keep", "must be one of compact, delete"),
        ("compression.gzip.level", "0", "1 to 9"),
        ("max.connections.per.ip.overrides", "local host:5", "no address and no host name"),
        ("listener.name.plaintext.max.connections", "-1", "at least 0"),
        ("log.cleaner.threads", "0", "should be at least 1"),
        ("log.cleaner.threads", "9", "more than double the current value 4"),
        ("log.cleaner.threads", "1", "less than half the current value 4"),
        (
            "num.partitions",
            "5",
            r": Cannot update these configs dynamically: Set\(num\.partitions\)",
        ),
        (
            "num.io.threads",
            "5",
            r": Cannot update these configs dynamically: Set\(num\.io\.threads\)",
        ),
        ("leader.replication.throttled.rate", "5", "Cannot update these configs dynamically"),
        ("listener.name.x.ssl.client.auth", "none", "Cannot update these configs dynamically"),
        (
            "log.retentions.ms",
            "5",
            r": Unknown Dynamic Configuration: Set\(log\.retentions\.ms\): .* no plug-ins",
        ),
    ],
)
@pytest.mark.parametrize("resource", ["", "3"])
def test_what_cannot_take_effect_is_refused(
    resource: str, name: str, value: str, words: str
) -> None:
    """Nothing is stored that the broker would then ignore."""
    with pytest.raises(InvalidRequest, match=words):
        alter(image_of(), resource, (name, SET, value), log_cleaner_threads=4)


def test_threads_are_compared_with_the_number_in_effect() -> None:
    """A cluster-wide value has no effect on a broker that has one of its own."""
    image = image_of(None, {"3:log.cleaner.threads": "8"})
    assert alter(image, "3", ("log.cleaner.threads", SET, "16"), log_cleaner_threads=4)
    assert alter(image, "", ("log.cleaner.threads", SET, "100"), log_cleaner_threads=4)
    with pytest.raises(InvalidRequest, match="more than double"):
        alter(image_of(), "", ("log.cleaner.threads", SET, "100"), log_cleaner_threads=4)


def test_settings_that_kafka_stored_are_kept_and_can_be_removed() -> None:
    """Apache Kafka uses them when it has the directory again."""
    image = image_of(None, {":num.io.threads": "16", ":ssl.cipher.suites": "none"})
    [record] = alter(image, "", ("log.retention.ms", SET, "5"))
    assert isinstance(record, ConfigRecord)
    assert record.name == "log.retention.ms"
    [record] = alter(image, "", ("num.io.threads", DELETE, None))
    assert java_text([record]) == [
        "ConfigRecord(resourceType=4, resourceName='', name='num.io.threads', value=null)"
    ]
    with pytest.raises(InvalidRequest, match="Cannot update"):
        alter(image, "", ("num.io.threads", SET, "17"))


def test_too_long_values_are_refused() -> None:
    """A response could not hold them."""
    value = ",".join(["10.0.0.1:5"] * 4000)
    with pytest.raises(InvalidConfiguration, match="maximum value size of 32767 bytes"):
        alter(image_of(), "", ("max.connections.per.ip.overrides", SET, value))


def test_looking_only_gives_no_records() -> None:
    """The answer has the settings as they would be."""
    change = ("log.retention.ms", SET, " 5 ")
    assert alter(image_of(), "", change, validate_only=True) == ()
    with pytest.raises(InvalidRequest):
        alter(image_of(), "", ("log.retention.ms", SET, "x"), validate_only=True)


def test_replacing_all_settings_removes_the_others() -> None:
    """AlterConfigs, the older API, names all that are to stay."""
    image = image_of(None, {":log.retention.ms": "5", ":log.roll.ms": "6"})
    _, records = alter_broker_configs(
        image,
        "",
        lambda _: {"log.roll.ms": "6"},
        named=["log.roll.ms"],
        static=broker_settings({}),
        node_id=NODE,
    )
    assert [(record.name, record.value) for record in records] == [("log.retention.ms", None)]
    elr = image_of(
        {"metadata.version": 25, "eligible.leader.replicas.version": 1},
        {":min.insync.replicas": "1"},
    )
    with pytest.raises(InvalidConfiguration, match="cannot be removed while ELR is enabled"):
        alter_broker_configs(
            elr, "", lambda _: {}, named=[], static=broker_settings({}), node_id=NODE
        )


def test_the_settings_of_a_node_are_its_own_then_the_clusters() -> None:
    """The controller decides by the same settings that the node uses."""
    image = image_of(
        None,
        {":log.retention.ms": "5", ":log.roll.ms": "6", "3:log.roll.ms": "7", "4:log.roll.ms": "8"},
    )
    settings = node_settings(image, broker_settings({"log.segment.bytes": 2000000}), NODE)
    assert (settings.log_retention_ms, settings.log_roll_ms) == (5, 7)
    assert settings.log_segment_bytes == 2000000


def test_only_min_insync_replicas_ends_eligibility() -> None:
    """Each topic is named, the cluster's value concerns all."""
    image = image_of({"eligible.leader.replicas.version": 1})
    records = [
        ConfigRecord(resource_type=kind, resource_name=name, name=setting, value="1")
        for kind, name in ((2, "t"), (4, ""))
        for setting in ("min.insync.replicas", "retention.ms")
    ]
    assert list(clear_elr_records(image, records)) == [
        ClearElrRecord(topic_name="t"),
        ClearElrRecord(topic_name=""),
    ]
    assert list(clear_elr_records(image_of(), records)) == []


def test_a_list_that_is_empty_does_not_begin_with_its_default():
    """Source: Kafka `ConfigurationControlManager.getParts`."""
    changes = [("log.cleanup.policy", OPERATIONS["APPEND"], "compact")]
    empty = {"log.cleanup.policy": ""}
    assert changed_broker_configs(empty, changes) == {"log.cleanup.policy": "compact"}
    assert changed_broker_configs({}, changes) == {"log.cleanup.policy": "delete,compact"}
