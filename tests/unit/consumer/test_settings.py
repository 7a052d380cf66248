"""Settings of a consumer: reset policies, durations, and validation."""

from __future__ import annotations

import pytest

from aiokq.assign.range import RangeAssignor
from aiokq.consumer.rules import duration_ms
from aiokq.consumer.settings import ConsumerSettings
from aiokq.core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT1H", 3_600_000),
        ("pt1m30s", 90_000),
        ("P2D", 172_800_000),
        ("P1DT1H", 90_000_000),
        ("PT0.25S", 250),
    ],
)
def test_durations_are_read_as_java_does(text: str, milliseconds: int) -> None:
    """KIP-1106 uses the text form of java.time.Duration."""
    assert duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "1H", "PT1D", "P1M", "PT-1S", "P1DT", "PT\u0661H"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    """A misunderstood reset policy would skip records."""
    with pytest.raises(ValueError):
        duration_ms(text)
    with pytest.raises(ConfigError, match="auto_offset_reset"):
        ConsumerSettings(auto_offset_reset=f"by_duration:{text}")


def test_policies_are_kafkas() -> None:
    """In upper or lower case."""
    assert ConsumerSettings().auto_offset_reset == "latest"
    assert ConsumerSettings(auto_offset_reset="EARLIEST").auto_offset_reset == "earliest"
    settings = ConsumerSettings(auto_offset_reset="by_duration:pt1h")
    assert settings.reset_duration_ms == 3_600_000
    assert ConsumerSettings().reset_duration_ms is None
    with pytest.raises(ConfigError):
        ConsumerSettings(auto_offset_reset="smallest")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("group_instance_id", "i"),
        ("enable_auto_commit", True),
        ("auto_commit_interval_ms", 5_000),
        ("session_timeout_ms", 10_000),
        ("max_poll_interval_ms", 1),
        ("partition_assignment_strategy", "range"),
        ("ack_mode", "explicit"),
    ],
)
def test_group_settings_are_refused_without_a_group(name: str, value: object) -> None:
    """If it were ignored, offsets would seem to be committed."""
    with pytest.raises(ConfigError, match="set group_id"):
        ConsumerSettings(**{name: value})


def test_auto_commit_is_on_by_default_only_with_a_group() -> None:
    """It is Kafka's default; without a group there is nothing to commit to."""
    assert not ConsumerSettings().auto_commit
    assert not ConsumerSettings(enable_auto_commit=False).auto_commit
    assert ConsumerSettings(group_id="g").auto_commit
    assert not ConsumerSettings(group_id="g", enable_auto_commit=False).auto_commit


@pytest.mark.parametrize(
    ("settings", "fix"),
    [
        ({"group_protocol": "consumer", "session_timeout_ms": 9_000}, "group_protocol='classic'"),
        ({"group_protocol": "consumer", "heartbeat_interval_ms": 9}, "leave it out"),
        ({"group_protocol": "CONSUMER", "partition_assignment_strategy": "range"}, "classic"),
        ({"group_remote_assignor": "uniform"}, "group_protocol='consumer'"),
        ({"heartbeat_interval_ms": 45_000}, "below session_timeout_ms"),
        ({"partition_assignment_strategy": "rang"}, "did you mean range"),
        ({"partition_assignment_strategy": "range,range"}, "twice"),
        ({"group_instance_id": ""}, "name the member"),
        ({"group_id": ""}, "name the group"),
    ],
)
def test_contradictory_settings_name_the_fix(settings: dict[str, object], fix: str) -> None:
    """Java refuses the same combinations; a setting without effect would be worse."""
    with pytest.raises(ConfigError, match=fix):
        ConsumerSettings(**({"group_id": "g"} | settings))


def test_the_rebalance_timeout_defaults_to_max_poll_interval() -> None:
    """Java has no setting of its own for it."""
    assert ConsumerSettings(group_id="g").rebalance_timeout == 300
    assert ConsumerSettings(group_id="g", max_poll_interval_ms=1_000).rebalance_timeout == 1
    assert ConsumerSettings(group_id="g", rebalance_timeout_ms=7_000).rebalance_timeout == 7


def test_group_settings_can_have_javas_names(tmp_path) -> None:
    """The class names of assignors are accepted too."""
    path = tmp_path / "consumer.properties"
    path.write_text(
        "group.id=billing\ngroup.protocol=CLASSIC\nsession.timeout.ms=10000\n"
        "enable.auto.commit=false\npartition.assignment.strategy="
        "org.apache.kafka.clients.consumer.CooperativeStickyAssignor, roundrobin\n"
    )
    settings = ConsumerSettings.from_properties(path)
    assert (settings.group_id, settings.session_timeout_ms) == ("billing", 10_000)
    assert not settings.auto_commit
    assert len(settings.partition_assignment_strategy) == 2


class Mine(RangeAssignor):
    name = "mine"


def test_a_custom_assignor_may_be_given_without_a_list() -> None:
    """Single names were accepted, but for a single object the error asked for a tuple."""
    mine = Mine()
    settings = ConsumerSettings(group_id="g", partition_assignment_strategy=mine)
    assert settings.partition_assignment_strategy == (mine,)


@pytest.mark.parametrize(
    ("strategy", "says"),
    [
        (Mine, "Mine is a class"),
        (["range", Mine], "Mine is a class"),
        ([object()], r"neither the name of an assignor nor an Assignor.*assign\(\)"),
        (None, "None is neither"),
    ],
)
def test_an_invalid_assignor_is_refused_with_an_explanation(strategy: object, says: str) -> None:
    """A class passes the protocol check like its instances, but failed in the first rebalance."""
    with pytest.raises(ConfigError, match=says):
        ConsumerSettings(group_id="g", partition_assignment_strategy=strategy)


def test_an_unknown_setting_names_the_nearest() -> None:
    """A typo must not go unnoticed."""
    with pytest.raises(ConfigError, match="fetch_min_bytes"):
        ConsumerSettings(fetch_min_byte=1)


def test_java_names_come_from_a_file(tmp_path) -> None:
    """An existing consumer.properties can be used."""
    path = tmp_path / "consumer.properties"
    path.write_text(
        "bootstrap.servers=a:1\nauto.offset.reset=earliest\nfetch.min.bytes=5\n"
        "isolation.level=read_committed\n"
    )
    settings = ConsumerSettings.from_properties(path)
    assert (settings.fetch_min_bytes, settings.committed_only) == (5, True)
