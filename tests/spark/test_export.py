"""`aiokq spark export` end to end: the records in the log, and the errors of failed exports."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import aiokq
from aiokq.cli.app import execute
from aiokq.errors import ConfigError
from aiokq.spark import ExportColumns, Exported, ExportFailed, ExportProgress, export
from tests.peers.broker_process import broker_process
from tests.spark.checked import acknowledged, assert_written
from tests.spark.logs import log, values
from tests.spark.topics import Topics

HEADER = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@dataclass
class Said:
    """Output of a run of the command line."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, object]:
        document: dict[str, object] = json.loads(self.out)
        return document


class CommandLine:
    """`aiokq spark export`, run in this process."""

    def __init__(self, servers: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.servers = servers
        self._capsys = capsys

    def __call__(self, *arguments: object) -> Said:
        self._capsys.readouterr()
        code = execute(["spark", "export", *map(str, arguments), "-b", self.servers])
        said = self._capsys.readouterr()
        return Said(code, said.out, said.err)


@pytest.fixture
def cli(topics: Topics, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(topics.bootstrap_servers, capsys)


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    """25,000 rows in two files, which make three pieces."""
    for name, first, rows in (("a", 0, 15_000), ("b", 15_000, 10_000)):
        ids = pa.array(range(first, first + rows), pa.int64())
        parquet.write_table(pa.table({"id": ids}), tmp_path / f"{name}.parquet")
    return tmp_path


def exported(topics: Topics, source: Path, topic: str, **options: object) -> Exported:
    """Export with the library's function."""

    async def work(cluster: aiokq.Cluster) -> Exported:
        return await export(cluster, source, topic, **options)  # type: ignore[arg-type]

    return topics.run(work)


def test_rows_become_records_in_their_order_and_are_counted(
    cli: CommandLine, topics: Topics, topic: str, numbers: Path
) -> None:
    """Rows of all files become JSON, are acknowledged, and are read back from the log."""
    done = cli(numbers, "--to", topic, "--create", "--key-column", "id", "--verify", "--json")
    assert done.code == 0, done.err
    found = done.json
    assert (found["files"], found["rows"], found["sent"]) == (2, 25_000, 25_000)
    assert (found["created"], found["verified"], found["in_log"]) == (True, True, 25_000)
    assert found["others"] == 0
    assert found["columns"] == "key: id; value: JSON of id"
    records = log(topics, topic)
    assert [(r.key, r.value) for r in records] == [
        (b"%d" % n, b'{"id":%d}' % n) for n in range(25_000)
    ]


def test_the_summary_is_for_people(cli: CommandLine, topic: str, numbers: Path) -> None:
    """One line says what was exported, one what was verified."""
    done = cli(numbers / "b.parquet", "--to", topic, "--create", "--verify", "-z", "zstd")
    assert done.code == 0, done.err
    first, second = done.out.splitlines()
    assert first.startswith(f"10000 rows of 1 file acknowledged by {topic}; 10000 now (")
    assert second == "verified: 10000 rows are in the log, unchanged"


def test_keys_headers_times_and_partitions_come_from_columns(
    cli: CommandLine, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """Each row has its partition; a null value deletes its key, a null partition goes by key."""
    topics.create(topic, 3)
    table = pa.table(
        {
            "k": ["a", None, "c", "d"],
            "v": pa.array([b"1", b"\xff", None, b"4"]),
            "t": pa.array([1_700_000_000_001_999] * 4, pa.timestamp("us", "UTC")),
            "p": pa.array([2, 0, 2, 1], pa.int16()),
            "h": pa.array([[{"key": "a", "value": b"x"}], None, None, None], HEADER),
            "n": [5, None, None, None],
        }
    )
    parquet.write_table(table, tmp_path / "a.parquet")
    columns = ("--key-column", "k", "--value-column", "v", "--timestamp-column", "t")
    more = ("--partition-column", "p", "--headers-column", "h", "-H", "n=n")
    done = cli(tmp_path, "--to", topic, *columns, *more, "--verify")
    assert done.code == 0, done.err
    assert [tuple(record) for record in log(topics, topic)] == [
        (0, None, b"\xff", (), 1_700_000_000_001),
        (1, b"d", b"4", (), 1_700_000_000_001),
        (2, b"a", b"1", (("a", b"x"), ("n", b"5")), 1_700_000_000_001),
        (2, b"c", None, (), 1_700_000_000_001),
    ]


def test_rows_of_records_are_restored_as_they_were(
    topics: Topics, topic: str, tmp_path: Path
) -> None:
    """A backup needs no options; records without a timestamp (-1) get the current time."""
    table = pa.table(
        {
            "key": pa.array([b"k", None]),
            "value": pa.array([b"v", None], pa.binary()),
            "topic": ["old", "old"],
            "partition": pa.array([7, 7], pa.int32()),
            "offset": pa.array([1, 2], pa.int64()),
            "timestamp": pa.array([1_700_000_000_000_000, -1_000], pa.timestamp("us", "UTC")),
            "timestampType": pa.array([0, 0], pa.int32()),
            "headers": pa.array([[{"key": "h", "value": None}], None], HEADER),
        }
    )
    batch = tmp_path / "batch_id=0"
    batch.mkdir()
    parquet.write_table(table, batch / "part-0.parquet")
    topics.create(topic)
    done = exported(topics, tmp_path, topic, verify=True)
    assert done.verified
    dated, undated = (tuple(record)[1:] for record in log(topics, topic))
    assert dated == (b"k", b"v", (("h", None),), 1_700_000_000_000)
    assert undated[:3] == (None, None, ())
    assert undated[3] > 1_700_000_000_000


def test_a_run_that_is_done_writes_nothing_again(
    cli: CommandLine, topics: Topics, topic: str, numbers: Path, tmp_path: Path
) -> None:
    """The same command, run by cron: with --resume it continues, otherwise it starts again."""
    progress = tmp_path / "progress"
    for sent in (25_000, 0):
        done = cli(numbers, "--to", topic, "--create", "--resume", progress, "--verify", "--json")
        assert done.code == 0, done.err
        assert (done.json["sent"], done.json["in_log"], done.json["others"]) == (sent, 25_000, 0)
    done = cli(numbers, "--to", topic, "--verify", "--json")
    assert (done.json["sent"], done.json["in_log"]) == (25_000, 25_000)
    assert len(values(topics, topic)) == 50_000


def test_a_run_that_was_killed_is_gone_on_with(
    cli: CommandLine, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """SIGKILL in the middle: no row is lost, and records in flight are not sent again.

    Records that the broker appends after the next run has looked are, up to eight pieces.
    """
    rows = 300_000
    parquet.write_table(pa.table({"id": range(rows)}), tmp_path / "a.parquet")
    topics.create(topic, 2)
    progress = tmp_path / "progress"
    arguments = [str(tmp_path / "a.parquet"), "--to", topic, "--resume", str(progress)]
    command = [sys.executable, "-m", "aiokq", "spark", "export", *arguments]
    process = subprocess.Popen([*command, "-b", topics.bootstrap_servers])
    try:
        deadline = time.monotonic() + 300
        while not progress.exists() or progress.read_bytes().count(b"\n") < 4:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    done = cli(*arguments, "--verify", "--json")
    assert done.code == 0, done.err
    assert done.json["rows"] == done.json["in_log"] == rows
    assert done.json["resumed"] >= 20_000
    assert done.json["resumed"] + done.json["sent"] == rows
    times = Counter(values(topics, topic))
    assert len(times) == rows
    assert sum(times.values()) - rows == done.json["others"] <= 80_000
    sent = list(acknowledged(topic, (f'{{"id":{n}}}' for n in range(rows))))
    assert_written(topics, topic, sent, at_least_once=True)


@pytest.mark.parametrize(
    "others",
    [pytest.param(0, marks=pytest.mark.full, id="alone"), pytest.param(3_000, id="others")],
)
def test_rows_that_arrived_and_were_not_noted_are_not_sent_again(
    topics: Topics, topic: str, tmp_path: Path, others: int
) -> None:
    """Regression: eight pieces were sent twice after a kill.

    Equal records of other producers do not count. Many rows are equal and have no key, so the
    producer chooses their partitions.
    """
    rows = 140_000
    content = [f"{n % 1000}" for n in range(rows)]
    parquet.write_table(pa.table({"v": content}), tmp_path / "a.parquet")
    topics.create(topic, 2)
    progress, killed = tmp_path / "progress", tmp_path / "killed"

    async def work(cluster: aiokq.Cluster) -> None:
        def told(how_far: ExportProgress) -> None:
            if how_far.done >= 20_000 and not killed.exists():
                shutil.copy(progress, killed)  # all that a kill at this moment would leave
            if how_far.done >= 50_000:
                task.cancel()

        task = asyncio.current_task()
        assert task is not None
        columns = ExportColumns(value="v")
        await export(cluster, tmp_path, topic, columns=columns, resume=progress, told=told)

    async def write_others(cluster: aiokq.Cluster) -> None:
        async with cluster.producer() as producer:
            for partition in (0, 1):
                await producer.send_many(topic, [(None, b"7")] * (others // 2), partition)

    with pytest.raises(asyncio.CancelledError):
        topics.run(work)
    arrived = len(values(topics, topic))
    assert arrived >= 50_000
    topics.run(write_others)

    done = exported(
        topics, tmp_path, topic, columns=ExportColumns(value="v"), resume=killed, verify=True
    )

    assert (done.rows, done.resumed, done.verified) == (rows, arrived, True)
    assert done.checked is not None
    assert done.checked.others == others
    expected = Counter(content) + Counter({"7": others})
    assert Counter(values(topics, topic)) == expected


def test_an_interrupted_run_says_how_far_it_is_and_goes_on(
    topics: Topics, topic: str, numbers: Path, tmp_path: Path
) -> None:
    """Cancelled as by Ctrl-C: accepted records are delivered and noted, so none is sent twice."""
    progress = tmp_path / "progress"

    async def work(cluster: aiokq.Cluster) -> None:
        def told(how_far: ExportProgress) -> None:
            if how_far.done:
                task.cancel()

        task = asyncio.current_task()
        assert task is not None
        await export(cluster, numbers, topic, create=aiokq.NewTopic(""), resume=progress, told=told)

    with pytest.raises(asyncio.CancelledError):
        topics.run(work)
    done = exported(topics, numbers, topic, resume=progress, verify=True)
    assert done.verified
    assert done.resumed >= 10_000
    assert done.checked is not None
    assert done.checked.others == 0


def test_a_missing_topic_is_created_only_if_asked_for(
    cli: CommandLine, topics: Topics, topic: str, numbers: Path
) -> None:
    """A misspelt topic must not be created, although the broker of these tests would do it."""
    refused = cli(numbers, "--to", topic)
    assert refused.code == 1
    assert f"there is no topic {topic}: create it first, or let the export create it" in refused.err
    assert "aiokq spark export" not in refused.out

    async def names(cluster: aiokq.Cluster) -> list[str]:
        async with cluster.admin() as admin:
            return list(await admin.list_topics())

    assert topic not in topics.run(names)
    wanted = ("--create", "--partitions", "4", "--set", "cleanup.policy=compact,delete")
    more = ("--replication-factor", "1", "--key-column", "id", "--json")
    done = cli(numbers, "--to", topic, *wanted, *more)
    assert done.code == 0, done.err
    assert done.json["created"] is True

    async def describe(cluster: aiokq.Cluster) -> tuple[int, str | None]:
        async with cluster.admin() as admin:
            described = await admin.describe_topics([topic], raise_errors=True)
            resource = aiokq.ConfigResource(aiokq.ConfigResourceType.TOPIC, topic)
            configs = await admin.describe_configs([resource], raise_errors=True)
            policy = configs[resource].entries["cleanup.policy"].value
            return len(described[topic].partitions), policy

    assert topics.run(describe) == (4, "compact,delete")


def test_a_missing_column_is_told_before_anything_is_sent(
    cli: CommandLine, topics: Topics, topic: str, numbers: Path
) -> None:
    """The error names the column, the file, and the existing columns."""
    topics.create(topic)
    done = cli(numbers, "--to", topic, "--key-column", "ID")
    assert done.code == 1
    assert done.err == (
        f"aiokq: --key-column: {numbers}/a.parquet: there is no column 'ID'; there are id\n"
    )
    assert values(topics, topic) == []


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--partitions", "3"), "--partitions applies only to a new topic: give --create as well"),
        (("--value-column", "id", "--value-columns", "id"), "exclude each other"),
        (("-H", "id"), "--header-column needs NAME=COLUMN"),
    ],
)
def test_options_that_contradict_are_wrong_usage(
    cli: CommandLine, topic: str, numbers: Path, options: tuple[str, ...], complaint: str
) -> None:
    """The command contacts no broker and reads no file."""
    done = cli(numbers, "--to", topic, *options)
    assert done.code == 2
    assert complaint in done.err


def test_a_row_that_is_too_large_is_named(
    cli: CommandLine, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """The error names the file, the row, its size, and the limit to raise."""
    topics.create(topic, max_message_bytes="2000")
    texts = [b"x"] * 10 + [b"x" * 5_000] + [b"x"] * 10
    parquet.write_table(pa.table({"v": texts}), tmp_path / "a.parquet")
    done = cli(tmp_path, "--to", topic, "--value-column", "v")
    assert done.code == 1
    assert "a.parquet, row 11: a record of 5,000 bytes" in done.err
    assert "max.message.bytes" in done.err
    assert "Traceback" not in done.err
    parquet.write_table(pa.table({"v": [b"x", b"x" * 2_000_000]}), tmp_path / "a.parquet")
    done = cli(tmp_path, "--to", topic, "--value-column", "v")
    assert done.code == 1
    assert "a.parquet, row 2: a record of 2,000,000 bytes" in done.err
    assert "max.request.size" in done.err


def test_a_partition_that_is_not_there_is_named(
    cli: CommandLine, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """Rows may come from a topic that had more partitions."""
    topics.create(topic, 2)
    for partition in (5, -1):
        table = pa.table({"p": pa.array([0, 1, partition])})
        parquet.write_table(table, tmp_path / "a.parquet")
        done = cli(tmp_path, "--to", topic, "--partition-column", "p")
        assert done.code == 1
        assert f"a.parquet, row 3, partition {partition}: " in done.err


def test_rows_that_retention_took_are_missed(
    cli: CommandLine, topics: Topics, topic: str, numbers: Path, tmp_path: Path
) -> None:
    """--verify must notice deleted and replaced records."""
    progress = tmp_path / "progress"
    assert cli(numbers, "--to", topic, "--create", "--resume", progress).code == 0
    topics.delete_records(topic, {0: 100})
    done = cli(numbers, "--to", topic, "--resume", progress, "--verify", "--json")
    assert done.code == 1
    assert (done.json["verified"], done.json["in_log"]) == (False, 24_900)
    assert "100 of 25000 acknowledged rows are not in the log" in done.err


def test_acknowledgements_are_not_optional(topics: Topics, topic: str, numbers: Path) -> None:
    """With acks=0 in the settings file nobody would know what is in the log."""
    with pytest.raises(ConfigError, match="acks=0"):
        exported(topics, numbers, topic, producer={"acks": 0})


def test_a_broker_that_is_away_is_told(
    capsys: pytest.CaptureFixture[str], topic: str, numbers: Path, tmp_path: Path
) -> None:
    """At the start: one line with the addresses, no traceback."""
    config = tmp_path / "client.properties"
    config.write_text("bootstrap.timeout.ms=500\n")
    cli = CommandLine("127.0.0.1:1", capsys)
    done = cli(numbers, "--to", topic, "--config", config)
    assert done.code == 1
    assert "127.0.0.1:1" in done.err
    assert done.err.count("\n") == 1


def test_a_broker_that_goes_away_leaves_an_export_that_can_be_gone_on_with(
    tmp_path: Path,
) -> None:
    """In the middle: the error names the row, and after a later run each row is in the log."""
    parquet.write_table(pa.table({"id": range(100_000)}), tmp_path / "a.parquet")
    progress = tmp_path / "progress"
    with broker_process(tmp_path / "data") as broker:
        topics = Topics(broker.bootstrap_servers)
        topics.create("t", 2)
        broker_port = int(broker.bootstrap_servers.rpartition(":")[2])

        def told(how_far: ExportProgress) -> None:
            if how_far.done and broker.process is not None and broker.process.poll() is None:
                broker.process.kill()
                broker.process.wait()

        async def work() -> None:
            servers = broker.bootstrap_servers
            async with aiokq.Cluster(servers, request_timeout_ms=1_000) as cluster:
                limits = {"delivery_timeout_ms": 2_000}
                await export(cluster, tmp_path, "t", producer=limits, resume=progress, told=told)

        with pytest.raises(ExportFailed, match=r"a\.parquet, row.* of 100,000 rows are ack"):
            asyncio.run(work())
        broker.stop()
        broker.port = broker_port
        broker.start()
        done = exported(topics, tmp_path, "t", resume=progress, verify=True)
        assert done.rows == 100_000
        assert done.resumed >= 10_000
        assert done.checked is not None
        assert done.checked.rows == 100_000
        assert len(set(values(topics, "t"))) == 100_000
        sent = list(acknowledged("t", (f'{{"id":{n}}}' for n in range(100_000))))
        assert_written(topics, "t", sent, at_least_once=True)


def test_other_columns_need_another_file_of_progress(
    topics: Topics, topic: str, numbers: Path, tmp_path: Path
) -> None:
    """The key column was forgotten, and the command is repeated with it."""
    topics.create(topic)
    progress = tmp_path / "progress"
    exported(topics, numbers, topic, resume=progress)
    with pytest.raises(ConfigError, match="other columns"):
        exported(topics, numbers, topic, columns=ExportColumns(key="id"), resume=progress)
