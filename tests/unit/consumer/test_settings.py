"""Settings of a consumer: policies, durations, and what is refused."""

from __future__ import annotations

import pytest

from aiokq.consumer.settings import ConsumerSettings, duration_ms
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
    """KIP-1106 takes java.time.Duration's text."""
    assert duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "1H", "PT1D", "P1M", "PT-1S", "P1DT"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    """A policy that means something else than was meant skips records."""
    with pytest.raises(ValueError):
        duration_ms(text)
    with pytest.raises(ConfigError, match="auto_offset_reset"):
        ConsumerSettings(auto_offset_reset=f"by_duration:{text}")


def test_policies_are_kafkas() -> None:
    """And written as people write them."""
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
        ("group_id", "g"),
        ("group_instance_id", "i"),
        ("enable_auto_commit", True),
        ("auto_commit_interval_ms", 5_000),
        ("session_timeout_ms", 10_000),
        ("max_poll_interval_ms", 1),
        ("partition_assignment_strategy", "range"),
    ],
)
def test_what_only_a_group_needs_is_refused_until_there_are_groups(
    name: str, value: object
) -> None:
    """Ignored, it would look as if offsets were committed."""
    with pytest.raises(ConfigError, match="groups are not supported yet"):
        ConsumerSettings(**{name: value})


def test_no_auto_commit_is_what_it_is_without_a_group() -> None:
    """Programs say so explicitly, and are right."""
    assert not ConsumerSettings(enable_auto_commit=False).enable_auto_commit


def test_an_unknown_setting_names_the_nearest() -> None:
    """A typo must not go unnoticed."""
    with pytest.raises(ConfigError, match="fetch_min_bytes"):
        ConsumerSettings(fetch_min_byte=1)


def test_java_names_come_from_a_file(tmp_path) -> None:
    """An existing consumer.properties goes on being of use."""
    path = tmp_path / "consumer.properties"
    path.write_text(
        "bootstrap.servers=a:1\nauto.offset.reset=earliest\nfetch.min.bytes=5\n"
        "isolation.level=read_committed\n"
    )
    settings = ConsumerSettings.from_properties(path)
    assert (settings.fetch_min_bytes, settings.committed_only) == (5, True)
