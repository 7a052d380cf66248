"""`aiokq cluster quorum`, `features` and `unregister`, with scripted answers of the controller."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from aiokq.admin.client import Admin
from aiokq.admin.clusters import BrokerDescription, ClusterDescription
from aiokq.admin.features import (
    FeatureMetadata,
    FeatureUpdate,
    FeatureUpdated,
    FinalizedVersionRange,
    SupportedVersionRange,
)
from aiokq.admin.quorum import QuorumInfo, QuorumNode, QuorumReplicaState, RaftVoterEndpoint
from aiokq.admin.results import Results
from aiokq.broker.metadata.image.features import FEATURES
from aiokq.core.errors import InvalidUpdateVersion, UnsupportedVersion
from tests.unit.cli.harness import CommandLine

LACKING = [
    "kraft.version",
    "transaction.version",
    "eligible.leader.replicas.version",
    "share.version",
    "streams.version",
]
"""The features of Kafka 4.2 except group.version."""

NOT_DONE = "dry run, nothing was changed: add --execute to make the changes"

# -- quorum


def answer_quorum(monkeypatch: pytest.MonkeyPatch, leader_id: int) -> None:
    found = QuorumInfo(
        leader_id,
        4,
        90,
        (
            QuorumReplicaState(1, UUID(int=77), 100, 6000, 6000),
            QuorumReplicaState(2, None, -1),
        ),
        (QuorumReplicaState(10, None, 80, 4500, 3000),),
        {1: QuorumNode(1, (RaftVoterEndpoint("CONTROLLER", "c1", 9093),))},
    )

    async def describe(admin: Admin) -> QuorumInfo:
        return found

    monkeypatch.setattr(Admin, "describe_metadata_quorum", describe)


def test_the_quorum_is_a_row_per_replica(cli: CommandLine, monkeypatch: pytest.MonkeyPatch):
    """A replica whose end is unknown has no lag."""
    answer_quorum(monkeypatch, 1)
    done = cli("cluster", "quorum")
    assert done.lines[0] == "leader 1, epoch 4, high watermark 90"
    rows = [line.split() for line in done.lines[2:]]
    time = "1970-01-01T00:00:06.000Z"
    directory = "AAAAAAAAAAAAAAAAAAAATQ"
    assert rows[0] == ["1", "leader", "100", "0", time, time, directory, "CONTROLLER://c1:9093"]
    assert rows[1] == ["2", "follower", "-", "-", "-", "-", "-", "-"]
    assert rows[2][:4] == ["10", "observer", "80", "20"]
    document = cli("cluster", "quorum", "--json").json
    assert (document["leader_id"], document["leader_epoch"], document["high_watermark"]) == (
        1,
        4,
        90,
    )
    leader, follower, observer = document["replicas"]
    assert leader == {
        "node_id": 1,
        "role": "leader",
        "directory_id": directory,
        "log_end_offset": 100,
        "lag": 0,
        "last_fetch_timestamp_ms": 6000,
        "last_caught_up_timestamp_ms": 6000,
        "endpoints": ["CONTROLLER://c1:9093"],
    }
    assert (follower["log_end_offset"], follower["lag"]) == (-1, None)
    assert (observer["role"], observer["lag"]) == ("observer", 20)


def test_a_quorum_without_a_leader_has_no_lags(cli: CommandLine, monkeypatch: pytest.MonkeyPatch):
    """Nobody knows the end of the log."""
    answer_quorum(monkeypatch, -1)
    done = cli("cluster", "quorum")
    assert done.lines[0].startswith("leader none")
    assert [line.split()[1] for line in done.lines[2:]] == ["follower", "follower", "observer"]
    assert {replica["lag"] for replica in cli("cluster", "quorum", "--json").json["replicas"]} == {
        None
    }


@pytest.mark.parametrize(
    "command",
    [
        ("quorum",),
        ("features", "--upgrade", "group.version=1"),
        ("unregister", "7", "--execute"),
    ],
)
def test_a_broker_without_the_request_is_named_as_the_reason(
    cli: CommandLine, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
):
    """The exit code is 1, with one line."""

    async def refuse(admin: Admin, *arguments: Any, **options: Any) -> None:
        raise UnsupportedVersion("the broker does not have it")

    for name in ("describe_metadata_quorum", "update_features", "unregister_broker"):
        monkeypatch.setattr(Admin, name, refuse)
    done = cli("cluster", *command)
    assert done.code == 1
    assert "the broker does not have it" in done.complaint


# -- features


class Features:
    """`update_features`, which records its calls and refuses the features in `refused`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *refused: str) -> None:
        self.asked: list[tuple[dict[str, tuple[int, str]], bool]] = []
        features = self

        async def update(
            admin: Admin, updates: Mapping[str, FeatureUpdate], *, validate_only: bool
        ) -> Results[str, FeatureUpdated]:
            wanted = {n: (u.max_version_level, u.upgrade_type) for n, u in updates.items()}
            features.asked.append((wanted, validate_only))
            error = InvalidUpdateVersion("too high")
            return Results({n: FeatureUpdated(n, error if n in refused else None) for n in wanted})

        monkeypatch.setattr(Admin, "update_features", update)


def test_features_are_listed_with_their_levels(cli: CommandLine, monkeypatch: pytest.MonkeyPatch):
    """A level of metadata.version has its name; a feature that is off has no level."""

    async def describe(admin: Admin) -> FeatureMetadata:
        return FeatureMetadata(
            {"metadata.version": FinalizedVersionRange(25, 25)},
            42,
            {
                "group.version": SupportedVersionRange(0, 1),
                "metadata.version": SupportedVersionRange(7, 29),
            },
        )

    monkeypatch.setattr(Admin, "describe_features", describe)
    done = cli("cluster", "features")
    assert done.code == 0
    assert done.lines[1].split() == ["group.version", "-", "0", "1"]
    assert "25 (4.0-IV3)" in done.lines[2]
    assert "29 (4.2-IV1)" in done.lines[2]
    document = cli("cluster", "features", "--json").json
    assert document["epoch"] == 42
    assert document["features"][0] == {
        "name": "group.version",
        "finalized_level": None,
        "supported_min": 0,
        "supported_max": 1,
    }
    assert document["features"][1]["finalized_level"] == 25


def test_a_change_is_only_validated_without_execute(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
):
    """The levels are the same in both cases; metadata.version may be given by name."""
    features = Features(monkeypatch)
    change = ("--upgrade", "metadata.version=4.1-IV1", "--downgrade", "share.version=0")
    done = cli("cluster", "features", *change)
    assert done.code == 0
    assert done.lines == [
        "metadata.version: can be changed to level 27 (4.1-IV1)",
        "share.version: can be changed to level 0",
        NOT_DONE,
    ]
    done = cli("cluster", "features", *change, "--unsafe", "--execute", "--json")
    assert done.json["executed"] is True
    assert done.json["features"][1] == {
        "name": "share.version",
        "level": 0,
        "upgrade_type": "unsafe_downgrade",
        "error": None,
    }
    raised = {"metadata.version": (27, "upgrade")}
    assert features.asked == [
        (raised | {"share.version": (0, "safe_downgrade")}, True),
        (raised | {"share.version": (0, "unsafe_downgrade")}, False),
    ]


def answer_supported(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    async def describe(admin: Admin) -> FeatureMetadata:
        return FeatureMetadata({}, 1, {name: SupportedVersionRange(0, 1) for name in names})

    monkeypatch.setattr(Admin, "describe_features", describe)


def test_a_release_is_the_levels_that_kafkas_tools_set(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
):
    """A feature that the release leaves off is not sent, because level 0 is no upgrade."""
    features = Features(monkeypatch)
    answer_supported(monkeypatch, *FEATURES)
    done = cli("cluster", "features", "--release-version", "4.0", "--execute")
    assert done.code == 0
    assert "left out" not in done.out.decode()
    levels = {
        "metadata.version": 25,
        "kraft.version": 1,
        "transaction.version": 2,
        "group.version": 1,
    }
    assert features.asked == [({name: (n, "upgrade") for name, n in levels.items()}, False)]


def test_features_that_the_cluster_lacks_are_left_out_of_a_release(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
):
    """Otherwise the cluster would change none; metadata.version is the release itself."""
    features = Features(monkeypatch)
    answer_supported(monkeypatch, "group.version", "unknown.version")
    release = ("cluster", "features", "--release-version", "4.2")
    done = cli(*release)
    assert done.code == 0
    assert done.lines == [
        "metadata.version: can be changed to level 29 (4.2-IV1)",
        "group.version: can be changed to level 1",
        *(f"{name}: left out, because the cluster does not support it" for name in LACKING),
        NOT_DONE,
    ]
    assert cli(*release, "--execute", "--json").json["left_out"] == LACKING
    wanted = {"metadata.version": (29, "upgrade"), "group.version": (1, "upgrade")}
    assert features.asked == [(wanted, True), (wanted, False)]


def test_a_release_that_the_cluster_refuses_is_an_error(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
):
    """A lower metadata.version is no upgrade."""
    assert cli("cluster", "features", "--release-version", "4.2", "--execute").code == 0
    done = cli("cluster", "features", "--release-version", "4.1", "--execute")
    assert done.code == 1
    assert "feature metadata.version. Can't downgrade" in done.complaint


def test_the_examples_of_the_help_work_one_after_the_other(cli: CommandLine):
    """On the embedded broker, which lacks features of Kafka 4.2 and listeners for controllers."""
    help_text = cli("cluster", "features", "--help").out.decode()
    shown = re.findall(r"\$ aiokq (cluster features.*)", help_text)
    assert len(shown) == 4
    for example in shown:
        done = cli(*example.split())
        assert done.code == 0, done.err
    levels = {
        one["name"]: one["finalized_level"]
        for one in cli("cluster", "features", "--json").json["features"]
    }
    assert levels["metadata.version"] == 27
    done = cli("cluster", "features", "--release-version", "4.2", "--execute")
    assert done.code == 0
    assert [line for line in done.lines if "left out" in line] == [
        f"{name}: left out, because the cluster does not support it"
        for name in ("share.version", "streams.version")
    ]
    for one in cli("cluster", "features", "--json").json["features"]:
        assert one["finalized_level"] == one["supported_max"]


def test_an_error_of_all_features_is_printed_once(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
):
    """Kafka 4 refuses all features of a request with the same error."""
    Features(monkeypatch, "group.version", "share.version")
    done = cli(
        "cluster", "features", "--upgrade", "group.version=7", "--upgrade", "share.version=1"
    )
    assert (done.code, done.lines) == (1, [])
    assert done.complaint == (
        "aiokq: group.version, share.version: too high (INVALID_UPDATE_VERSION)"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--upgrade", "group.version"), "NAME=LEVEL"),
        (("--upgrade", "group.version=x"), "level from 1"),
        (("--upgrade", "group.version=0"), "level from 1"),
        (("--upgrade", "group.version=40000"), "level from 1"),
        (("--downgrade", "metadata.version=4.0"), "level from 0"),
        (("--upgrade", "a=1", "--downgrade", "a=1"), "a is given twice"),
        (("--unsafe",), "--unsafe is for --downgrade"),
        (("--release-version", "4.2", "--upgrade", "a=1"), "excludes"),
        (("--release-version", "2.8"), "unknown release version '2.8'"),
        (("--execute",), "nothing to change"),
        (("--upgrade", "a=1", "--execute", "--dry-run"), "exclude each other"),
    ],
)
def test_options_that_cannot_be_followed_are_wrong_usage(
    alone: CommandLine, arguments: tuple[str, ...], said: str
):
    """The exit code is 2, and the cluster is not contacted."""
    done = alone("cluster", "features", *arguments)
    assert done.code == 2
    assert said in done.complaint


def test_options_belong_after_the_command(cli: CommandLine):
    """The address before the word would be ignored silently."""
    done = cli("cluster", "--json", "quorum")
    assert done.code == 2
    assert "after the word quorum" in done.complaint


# -- unregister


def answer_brokers(monkeypatch: pytest.MonkeyPatch, *, lists_fenced: bool = True) -> list[int]:
    """Return the list of ids that are unregistered later; broker 3 is fenced, broker 1 is not."""
    unregistered: list[int] = []

    async def describe(admin: Admin, *, include_fenced_brokers: bool = False) -> Any:
        if include_fenced_brokers and not lists_fenced:
            raise UnsupportedVersion("too old")
        brokers = [BrokerDescription(1, "a", 9092)]
        if include_fenced_brokers:
            brokers.append(BrokerDescription(3, "c", 9092, fenced=True))
        return ClusterDescription("id", 1, tuple(brokers))

    async def remove(admin: Admin, broker_id: int) -> None:
        unregistered.append(broker_id)

    monkeypatch.setattr(Admin, "describe_cluster", describe)
    monkeypatch.setattr(Admin, "unregister_broker", remove)
    return unregistered


def test_a_broker_is_unregistered_only_with_execute(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
):
    """Without it the command shows whether the broker is registered and stopped."""
    unregistered = answer_brokers(monkeypatch)
    done = cli("cluster", "unregister", "3")
    assert done.lines == [
        "broker 3: registered and out of service: can be unregistered",
        NOT_DONE,
    ]
    assert "stop it before" in cli("cluster", "unregister", "1", "--dry-run").lines[0]
    done = cli("cluster", "unregister", "9")
    assert done.code == 1
    assert "broker 9 is not registered" in done.complaint
    assert unregistered == []
    done = cli("cluster", "unregister", "3", "--execute")
    assert (done.code, done.lines) == (0, ["broker 3: unregistered"])
    done = cli("cluster", "unregister", "3", "--json")
    assert done.json == {"node_id": 3, "state": "fenced", "executed": False}
    assert unregistered == [3]
    assert cli("cluster", "unregister", "-1").code == 2


def test_an_old_cluster_cannot_tell_whether_a_stopped_broker_is_registered(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
):
    """Brokers before Kafka 4.0 list only those in service."""
    answer_brokers(monkeypatch, lists_fenced=False)
    assert "in service" in cli("cluster", "unregister", "1").lines[0]
    done = cli("cluster", "unregister", "3")
    assert done.code == 0
    assert "cannot show" in done.lines[0]
