"""`aiokq spark export --transactional`: no row lost and none twice, whenever it was killed."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import aiokq
from aiokq.errors import ConfigError
from aiokq.producer.producer import Producer
from aiokq.spark import Exported, ExportFailed, ExportProgress, ExportTransactions, export
from tests.spark.checked import acknowledged, assert_written
from tests.spark.conftest import ROOT, Killable
from tests.spark.logs import places
from tests.spark.test_export import CommandLine
from tests.spark.topics import Topics

ROWS = 25_000
LIMITS = ExportTransactions(rows=4_000)


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    """25,000 rows in two files, which are seven transactions of up to 4,000 rows."""
    for name, first, rows in (("a", 0, 15_000), ("b", 15_000, 10_000)):
        ids = pa.array(range(first, first + rows), pa.int64())
        parquet.write_table(pa.table({"id": ids}), tmp_path / f"{name}.parquet")
    return tmp_path


def exported(topics: Topics, source: Path, topic: str, **options: object) -> Exported:
    """Export with the library's function."""

    async def work(cluster: aiokq.Cluster) -> Exported:
        return await export(cluster, source, topic, **options)  # type: ignore[arg-type]

    return topics.run(work)


def committed(topics: Topics, topic: str) -> Counter[str]:
    """Return the committed values, as confluent-kafka reads them."""
    return Counter(value for _, _, value in places(topics, topic, "read_committed"))


def is_exact(topics: Topics, topic: str, rows: int = ROWS) -> bool:
    """Return whether each row is visible once; fail if the checker condemns anything."""
    values = [f'{{"id":{n}}}' for n in range(rows)]
    assert_written(topics, topic, list(acknowledged(topic, values)))
    return committed(topics, topic) == Counter(values)


def transactions(topics: Topics, topic: str) -> int:
    """Return the number of markers in the first partition."""

    async def work(cluster: aiokq.Cluster) -> int:
        end = await cluster.offsets((topic, 0), "latest")
        assert end is not None
        return end.offset

    return topics.run(work) - len([each for each in places(topics, topic) if each[0] == 0])


def test_rows_are_committed_in_transactions_of_limited_size(
    either: Topics, topic: str, numbers: Path, tmp_path: Path
) -> None:
    """By rows, by bytes, by time: each limit ends a transaction."""
    either.create(topic)
    done = exported(either, numbers, topic, transactions=LIMITS, verify=True)
    assert (done.rows, done.verified) == (ROWS, True)
    assert is_exact(either, topic)
    assert transactions(either, topic) == 7  # four of the first file, three of the second

    for name, limits, ended in (
        ("bytes", ExportTransactions(size=100_000), range(3, 7)),
        ("time", ExportTransactions(rows=1_000, seconds=0), range(25, 26)),
        ("one", ExportTransactions(), range(1, 2)),
    ):
        either.create(f"{topic}-{name}")
        exported(either, numbers, f"{topic}-{name}", transactions=limits)
        assert is_exact(either, f"{topic}-{name}")
        assert transactions(either, f"{topic}-{name}") in ended, name


@pytest.mark.parametrize("point", ["before the commit", "before the line"])
def test_a_run_that_ends_at_a_commit_is_gone_on_with_once(
    either: Topics,
    topic: str,
    numbers: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
) -> None:
    """The file lacks a committed transaction, or has all: the ledger tells which."""
    either.create(topic)
    progress, killed = tmp_path / "progress", tmp_path / "killed"
    commit = Producer.commit_transaction
    commits = 0

    async def dying(producer: Producer) -> None:
        nonlocal commits
        commits += 1
        if point == "before the line":
            await commit(producer)
        if commits == 3:
            # A kill would leave this file as it is now, and a transaction that nobody aborts.
            shutil.copy(progress, killed)
            raise RuntimeError("killed")
        if point == "before the commit":
            await commit(producer)

    monkeypatch.setattr(Producer, "commit_transaction", dying)
    with pytest.raises(RuntimeError, match="killed"):
        exported(either, numbers, topic, transactions=LIMITS, resume=progress)
    monkeypatch.undo()
    assert killed.read_bytes().count(b"\n") == 3

    done = exported(either, numbers, topic, transactions=LIMITS, resume=killed, verify=True)

    assert done.resumed == (8_000 if point == "before the commit" else 12_000)
    assert done.verified
    assert is_exact(either, topic)
    again = exported(either, numbers, topic, transactions=LIMITS, resume=killed, verify=True)
    assert (again.resumed, again.verified) == (ROWS, True)


@pytest.mark.full
def test_a_process_killed_again_and_again_writes_each_row_once(
    either: Topics, topic: str, tmp_path: Path
) -> None:
    """SIGKILL at five moments, also before the first commit."""
    rows = 200_000
    parquet.write_table(pa.table({"id": pa.array(range(rows), pa.int64())}), tmp_path / "a.parquet")
    either.create(topic, 2)
    progress = tmp_path / "progress"
    command = [
        *(sys.executable, "-m", "aiokq", "spark", "export", str(tmp_path / "a.parquet")),
        *("--to", topic, "--resume", str(progress), "--transactional"),
        *("--transaction-rows", "7000", "-b", either.bootstrap_servers),
    ]
    for lines in (1, 2, 4, 8, 12):
        process = subprocess.Popen(command, cwd=ROOT, env=os.environ)
        deadline = time.monotonic() + 120
        while not progress.exists() or progress.read_bytes().count(b"\n") < lines:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert 0 < sum(committed(either, topic).values()) < rows

    last = subprocess.run([*command, "--verify"], cwd=ROOT, capture_output=True, text=True)

    assert last.returncode == 0, last.stderr
    assert f"verified: {rows} rows are in the log, unchanged" in last.stdout
    assert is_exact(either, topic, rows)


@pytest.mark.full
def test_a_broker_that_is_killed_while_an_export_runs_gets_each_row_once(
    killable: Killable, topic: str, tmp_path: Path
) -> None:
    """SIGKILL at three moments; the export waits for the broker, and goes on."""
    rows, topics = 200_000, killable.topics
    parquet.write_table(pa.table({"id": pa.array(range(rows), pa.int64())}), tmp_path / "a.parquet")
    topics.create(topic, 2)
    progress = tmp_path / "progress"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "aiokq", "spark", "export", str(tmp_path / "a.parquet")),
            *("--to", topic, "--resume", str(progress), "--transactional", "--verify"),
            *("--transaction-rows", "2000", "-b", topics.bootstrap_servers),
        ],
        cwd=ROOT,
    )
    try:
        for lines in (2, 30, 60):
            deadline = time.monotonic() + 120
            while not progress.exists() or progress.read_bytes().count(b"\n") < lines:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.002)
            killable.kill()
            killable.start()
        assert process.wait(200) == 0
    finally:
        process.kill()
        process.wait()
    assert progress.read_bytes().count(b"\n") == 1 + rows // 2000
    assert is_exact(topics, topic, rows)


def test_an_atomic_export_is_all_or_nothing(
    either: Topics, topic: str, numbers: Path, tmp_path: Path
) -> None:
    """Nothing is visible before the end, and nothing of a run that was cancelled."""
    either.create(topic)
    progress = tmp_path / "progress"
    atomic = ExportTransactions(atomic=True)

    async def work(cluster: aiokq.Cluster) -> None:
        def told(how_far: ExportProgress) -> None:
            asyncio.get_running_loop().call_later(0.05, task.cancel)

        task = asyncio.current_task()
        assert task is not None
        await export(cluster, numbers, topic, transactions=atomic, resume=progress, told=told)

    with pytest.raises(asyncio.CancelledError):
        either.run(work)
    assert committed(either, topic) == {}

    done = exported(either, numbers, topic, transactions=atomic, resume=progress, verify=True)

    assert (done.resumed, done.verified) == (0, True)
    assert is_exact(either, topic)


def test_an_atomic_export_that_may_not_fit_is_refused_beforehand(
    either: Topics, topic: str, tmp_path: Path
) -> None:
    """By the rows and the limit of the brokers (15 minutes) or of the producer."""
    either.create(topic)
    parquet.write_table(pa.table({"id": [None] * 30_000_000}), tmp_path / "a.parquet")
    atomic = ExportTransactions(atomic=True)

    with pytest.raises(
        ConfigError, match=r"30,000,000 rows .* transaction.max.timeout.ms .* allows 900 s for one"
    ):
        exported(either, tmp_path, topic, transactions=atomic)
    limit = {"transaction_timeout_ms": 900_001}
    with pytest.raises(ConfigError, match=r"more than the brokers allow: .*=900000"):
        exported(either, tmp_path, topic, transactions=atomic, producer=limit)
    assert places(either, topic) == []


def test_a_row_that_is_refused_leaves_no_part_of_its_transaction(
    topics: Topics, topic: str, tmp_path: Path
) -> None:
    """The error names the row, and what earlier transactions have committed."""
    topics.create(topic, max_message_bytes="2000")
    values = [b"x"] * 10 + [os.urandom(5_000)] + [b"x"] * 10
    parquet.write_table(pa.table({"value": values}), tmp_path / "a.parquet")
    limits = ExportTransactions(rows=5)

    with pytest.raises(
        ExportFailed, match=r"row 11: a record of 5,000 bytes.*10 of 21 rows are co"
    ):
        exported(topics, tmp_path, topic, transactions=limits)

    assert committed(topics, topic) == Counter({"x": 10})


def test_a_time_limit_beyond_the_timeout_is_refused(
    topics: Topics, topic: str, numbers: Path
) -> None:
    """The broker would abort each transaction that uses its time."""
    topics.create(topic)
    with pytest.raises(ConfigError, match=r"60 s does not fit in transaction_timeout_ms=60000"):
        exported(topics, numbers, topic, transactions=ExportTransactions(seconds=60))


def test_progress_of_one_kind_is_not_continued_by_the_other(
    topics: Topics, topic: str, numbers: Path, tmp_path: Path
) -> None:
    """Rows that were in flight without a transaction are found in another way."""
    topics.create(topic)
    for name, first, second, how in (
        ("a", None, LIMITS, "without"),
        ("b", LIMITS, None, "with"),
    ):
        exported(topics, numbers, topic, resume=tmp_path / name, transactions=first)
        with pytest.raises(ConfigError, match=f"of an export {how} transactions"):
            exported(topics, numbers, topic, resume=tmp_path / name, transactions=second)


def test_an_old_copy_of_the_progress_is_refused(
    topics: Topics, topic: str, numbers: Path, tmp_path: Path
) -> None:
    """Continuing from it would write the rows since then again."""
    topics.create(topic)
    progress, old = tmp_path / "progress", tmp_path / "old"

    async def work(cluster: aiokq.Cluster) -> None:
        def told(how_far: ExportProgress) -> None:
            if how_far.done == 4_000:
                shutil.copy(progress, old)

        await export(cluster, numbers, topic, transactions=LIMITS, resume=progress, told=told)

    topics.run(work)
    with pytest.raises(ConfigError, match="has 1 transactions, and the cluster has committed 7"):
        exported(topics, numbers, topic, transactions=LIMITS, resume=old)


def test_the_command_writes_in_transactions(
    topics: Topics, topic: str, numbers: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Same command again: nothing is written; a limit needs --transactional."""
    cli = CommandLine(topics.bootstrap_servers, capsys)
    limits = ("--transactional", "--transaction-rows", 4_000, "--resume", tmp_path / "progress")
    for sent in (ROWS, 0):
        done = cli(numbers, "--to", topic, "--create", *limits, "--verify", "--json")
        assert done.code == 0, done.err
        assert (done.json["sent"], done.json["in_log"], done.json["others"]) == (sent, ROWS, 0)
    assert is_exact(topics, topic)


@pytest.mark.parametrize(
    "limits",
    [{"rows": 0}, {"rows": 1.0}, {"rows": True}, {"size": -1}, {"seconds": -1}, {"seconds": "1"},
     {"seconds": float("nan")}, {"seconds": float("inf")}],
)  # fmt: skip
def test_limits_that_are_not_numbers_or_out_of_range_are_refused(limits: dict[str, Any]) -> None:
    """A limit of 0 rows would end no transaction, or each one before its first row."""
    with pytest.raises(ConfigError, match=next(iter(limits))):
        ExportTransactions(**limits)
