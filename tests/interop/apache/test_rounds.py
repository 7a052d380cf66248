"""A log directory goes from aiokq to Apache Kafka and back, several times, and loses nothing."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiokq.broker.log.file_names import CLUSTER_METADATA
from aiokq.broker.metadata.log.metadata_reader import MetadataState
from tests.interop.apache import rounds
from tests.interop.apache.directories import Rows, commit, committed, complaints, read
from tests.interop.apache.rounds import DYNAMIC, STATIC, Node, Turn, differences, epochs, facts
from tests.peers.apache_kafka import SHELL, why_absent

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.build_independent,
    pytest.mark.skipif(why_absent() is not None, reason=str(why_absent())),
]

HARMLESS = ("Upgrading metadata.version", "Expected partition shared-")
"""Complaints of Apache Kafka about a raised level, and about partitions added to a topic."""

INVALID = ("isvalid: false", "Error", "Mismatch", "mismatch", "out of order")


@pytest.fixture
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path, request.param.removeprefix("spread "), spread="spread" in request.param)
    yield made
    made.stop()


def use(
    node: Node, turn: Turn, end: signal.Signals, before: Rows, *, both: bool = False
) -> tuple[dict[str, str], Rows]:
    """Take one turn; return the expected differences of the metadata, and all records.

    Args:
        before: the records at the end of the last turn.
        both: ask Apache Kafka only for what aiokq does, too.
    """
    broker = node.aiokq()
    if turn.make == "aiokq":
        broker.start()
    else:
        node.start_node(1)
    try:
        bootstrap = node.bootstrap_servers
        if before:
            assert read(bootstrap, rounds.counts(bootstrap)) == before
            assert committed(bootstrap, "workers", "shared", 1) == [turn.number - 1]
            asyncio.run(rounds.check_access(node, turn.make, turn.number - 1))
        if not both:
            asyncio.run(rounds.check_levels(bootstrap, turn.make, turn.number - 1))
        expected = asyncio.run(rounds.change(bootstrap, turn))
        expected |= rounds.change_acls(bootstrap, turn)
        expected |= asyncio.run(rounds.change_users(bootstrap, turn))
        expected |= asyncio.run(rounds.change_quotas(bootstrap, turn))
        if not both:
            expected |= asyncio.run(rounds.change_levels(bootstrap, turn))
        if turn.make == "kafka" and not both:
            expected |= asyncio.run(rounds.change_of_kafka(bootstrap, turn))
        asyncio.run(rounds.write(bootstrap, turn))
        commit(bootstrap, "workers", "shared", {0: turn.number})
        rows = read(bootstrap, rounds.counts(bootstrap))
    finally:
        if turn.make == "aiokq":
            code = broker.stop(end)
            assert code == (0 if end == signal.SIGTERM else -end)
        else:
            node.stop_node(1, end)
    return expected, rows


def play(node: Node, count: int, end: signal.Signals, *, both: bool = False) -> None:
    """Play some rounds; each turn ends with the signal. At last aiokq serves the result."""
    old: MetadataState | None = None
    rows: Rows = {}
    for turn in (Turn(make, one + 1) for one in range(count) for make in ("aiokq", "kafka")):
        expected, rows = use(node, turn, end, rows, both=both)
        new = rounds.state(node.data)
        assert new.kraft_version == int(node.voters == DYNAMIC)
        assert node.strays() == []
        if old is not None:
            assert differences(facts(old), facts(new)) == expected, turn
            assert new.epoch > old.epoch
            assert new.end_offset > old.end_offset
            assert new.image.next_producer_id > old.image.next_producer_id
            was, now = epochs(old), epochs(new)
            for place in was.keys() & now.keys():
                assert now[place] >= was[place], place
                if turn.make == "aiokq":  # it leads again what Kafka left, in a new epoch
                    assert now[place][0] > was[place][0], place
        old = new
    text = rounds.dump(node.data)
    assert not [word for word in INVALID if word in text]
    assert complaints(node, *HARMLESS) == []
    assert old is not None
    for _ in range(2):
        broker = node.aiokq()
        broker.start()
        bootstrap = node.bootstrap_servers
        assert read(bootstrap, rounds.counts(bootstrap)) == rows
        asyncio.run(rounds.check_access(node, "aiokq", 2 * count))
        if not both:
            asyncio.run(rounds.check_levels(bootstrap, "aiokq", 2 * count))
        assert broker.stop() == 0
        new = rounds.state(node.data)
        assert facts(new) == facts(old)
        assert new.end_offset > old.end_offset
        old = new


@pytest.mark.parametrize("node", [STATIC], indirect=True)
def test_one_round_with_clean_shutdowns(node: Node) -> None:
    play(node, 1, signal.SIGTERM)


@pytest.mark.parametrize("node", [DYNAMIC], indirect=True)
def test_one_round_with_kills(node: Node) -> None:
    play(node, 1, signal.SIGKILL)


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize("node", [STATIC, DYNAMIC], indirect=True)
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_three_rounds(node: Node, end: signal.Signals) -> None:
    play(node, 3, end)


@pytest.mark.full
@pytest.mark.parametrize("node", [f"spread {STATIC}", f"spread {DYNAMIC}"], indirect=True)
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_several_directories(node: Node, end: signal.Signals) -> None:
    """Partitions are found where they are, and new ones are in both log directories."""
    play(node, 1, end)
    for directory in node.log_dirs:
        assert list(directory.glob("shared-*")) + list(directory.glob("kafka-1-*")), directory


@pytest.mark.full
@pytest.mark.parametrize("node", [STATIC], indirect=True)
@pytest.mark.parametrize("release", ["3.3-IV3", "3.6", "3.7", "3.9", "4.0", "4.2"])
def test_directories_that_kafka_formatted_with_the_features_of_a_release(
    node: Node, release: str
) -> None:
    """Both brokers write the records of the directory's metadata.version."""
    node.format_release(release)
    level = {"3.3-IV3": 7, "3.6": 14, "3.7": 19, "3.9": 21, "4.0": 25, "4.2": 29}[release]
    play(node, 1, signal.SIGTERM, both=True)
    assert rounds.state(node.data).image.metadata_version == level


@pytest.mark.full
@pytest.mark.skipif(not (SHELL / ".complete").exists(), reason="no Kafka shell: run `make kafka`")
@pytest.mark.parametrize("node", [STATIC, DYNAMIC], indirect=True)
def test_kafkas_shell_reads_the_log_and_the_snapshots(node: Node, tmp_path: Path) -> None:
    """It finds the same topics, partitions and configs in them."""
    node.properties["metadata.log.max.record.bytes.between.snapshots"] = "20971520"
    use(node, Turn("aiokq", 1), signal.SIGTERM, {})
    whole = rounds.state(node.data)
    directory = node.data / CLUSTER_METADATA
    [segment] = directory.glob("*.log")
    paths = rounds.image_paths(whole)
    assert rounds.shell_paths(segment) == paths
    assert {"topics/byName/shared/0", "configs/TOPIC:shared/segment.ms"} < paths

    node.properties["metadata.log.max.record.bytes.between.snapshots"] = "1"
    broker = node.aiokq()
    broker.start()
    asyncio.run(rounds.change(node.bootstrap_servers, Turn("aiokq", 2)))
    assert broker.stop() == 0
    snapshots = sorted(directory.glob("*.checkpoint"))
    assert len(snapshots) >= 2
    alone = tmp_path / "alone" / CLUSTER_METADATA
    alone.mkdir(parents=True)
    shutil.copy(snapshots[-1], alone)
    assert rounds.shell_paths(snapshots[-1]) == rounds.image_paths(rounds.state(alone.parent))
