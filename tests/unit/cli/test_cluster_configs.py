"""`aiokq cluster configs` and `alter`: dynamic settings of brokers."""

from __future__ import annotations

from tests.unit.cli.harness import CommandLine


def test_settings_are_set_shown_and_deleted(cli: CommandLine) -> None:
    """For a broker, or for all; the broker's own value applies."""
    assert cli("cluster", "alter", "--set", "log.retention.ms=5000").lines == [
        "all brokers: altered"
    ]
    assert cli("cluster", "alter", "0", "--set", "log.retention.ms=7000").lines == [
        "broker 0: altered"
    ]
    rows = [line.split() for line in cli("cluster", "configs").lines]
    assert rows == [
        ["config", "value", "source", "dynamic"],
        ["log.retention.ms", "5000", "dynamic_default_broker_config", "yes"],
        ["min.insync.replicas", "1", "dynamic_default_broker_config", "yes"],
    ]
    assert cli("cluster", "configs", "0", "--json").json == {
        "broker": 0,
        "configs": {
            "log.retention.ms": {
                "value": "7000",
                "source": "dynamic_broker_config",
                "read_only": False,
            },
            "min.insync.replicas": {
                "value": "1",
                "source": "dynamic_default_broker_config",
                "read_only": False,
            },
        },
    }
    every = cli("cluster", "configs", "0", "--all", "--json").json["configs"]
    assert every["num.partitions"] == {
        "value": "1",
        "source": "default_config",
        "read_only": True,
    }
    assert cli("cluster", "alter", "0", "--delete", "log.retention.ms").code == 0
    assert cli("cluster", "configs", "0", "--json").json["configs"]["log.retention.ms"] == {
        "value": "5000",
        "source": "dynamic_default_broker_config",
        "read_only": False,
    }


def test_a_refused_change_is_said_and_changes_nothing(cli: CommandLine) -> None:
    """A dry run is refused for the same reasons."""
    for options in ((), ("--dry-run",)):
        done = cli("cluster", "alter", "0", "--set", "num.partitions=3", *options)
        assert done.code == 1
        assert "Cannot update these configs dynamically: Set(num.partitions)" in done.err
    done = cli("cluster", "alter", "--set", "log.roll.ms=5", "--dry-run", "--json")
    assert done.json == {"broker": None, "altered": False, "error": None}
    assert "log.roll.ms" not in cli("cluster", "configs", "--json").json["configs"]
    done = cli("cluster", "configs", "7")
    assert done.code == 1


def test_wrong_options_are_refused_before_a_cluster_is_asked(alone: CommandLine) -> None:
    """Exit code 2, as for every usage error."""
    assert alone("cluster", "alter", "0").code == 2
    assert alone("cluster", "configs", "--all").code == 2
    assert alone("cluster", "configs", "-1").code == 2
