"""Tasks of exactlyOnce without Spark's JVM: attempts of a task against a broker.

Spark's part (ids, retries, the order of calls) is tested by test_exactly_once.py.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

import aiokq
from aiokq.errors import ConfigError, ProducerFenced
from aiokq.spark.exactly_once import TaskId
from aiokq.spark.sink import KafkaStreamWriter, Written, stream_writer
from tests.spark.topics import Topics

pa = pytest.importorskip("pyarrow")
types = pytest.importorskip("pyspark.sql.types")

if TYPE_CHECKING:
    from aiokq import Cluster

SCHEMA = types.StructType().add("value", types.BinaryType())
Rows = list[bytes]
CURRENT = threading.local()
"""The id of the task that a thread runs."""


class Query:
    """Attempts of the tasks of one query; each test has a ledger of its own."""

    def __init__(self, topics: Topics, topic: str) -> None:
        self.topics = topics
        self.topic = topic
        self.run = "run 1"
        self.options = {
            "kafka.bootstrap.servers": topics.bootstrap_servers,
            "topic": topic,
            "exactlyOnce": "true",
            "ledgerTopic": f"{topic}-ledger",
            "kafka.transaction.timeout.ms": "10000",
        }

    @property
    def writer(self) -> KafkaStreamWriter:
        return stream_writer(self.options, SCHEMA, False)

    def task(self, batch: int, task: int, *parts: Rows | Exception | Callable[[], Rows]) -> Written:
        """Run one attempt of a task.

        Args:
            parts: its rows, an exception of its plan, or a function that returns rows.
        """
        CURRENT.id = TaskId(f"query-{self.topic}", self.run, batch, task)

        def batches() -> Iterator[pa.RecordBatch]:
            for part in parts:
                if isinstance(part, Exception):
                    raise part
                rows = part() if callable(part) else part
                yield pa.record_batch({"value": pa.array(rows, pa.binary())})

        return self.writer.write(batches())

    def visible(self) -> Counter[bytes]:
        """Return the committed values of the topic, once the markers of commits are written.

        The response to EndTxn does not wait for the markers.
        """
        deadline = time.monotonic() + 30
        while {"PrepareCommit", "PrepareAbort"} & {*self.transactions().values()}:
            assert time.monotonic() < deadline
            time.sleep(0.01)

        async def work(cluster: Cluster) -> Counter[bytes]:
            found: Counter[bytes] = Counter()
            async for batch in cluster.read((self.topic, 0), isolation_level="read_committed"):
                found.update(record.value or b"" for record in batch)
            return found

        return self.topics.run(work)

    def transactions(self) -> dict[str, str]:
        """Return the transactional ids of the query, with their states."""

        async def work(cluster: Cluster) -> dict[str, str]:
            async with cluster.admin() as admin:
                found = await admin.list_transactions(raise_errors=True)
            prefix = f"query-{self.topic}-"
            return {
                each.transactional_id: each.state.value
                for each in found.values()
                if each.transactional_id.startswith(prefix)
            }

        return self.topics.run(work)


@pytest.fixture
def query(either: Topics, topic: str, monkeypatch: pytest.MonkeyPatch) -> Query:
    either.create(topic)
    monkeypatch.setattr(TaskId, "current", lambda: CURRENT.id)
    return Query(either, topic)


def test_a_task_that_failed_has_left_nothing_and_writes_all_its_rows(query: Query) -> None:
    """Before the first record, and after some: the retry of the task begins again."""
    with pytest.raises(RuntimeError, match="injected"):
        query.task(0, 0, RuntimeError("injected"))
    with pytest.raises(RuntimeError, match="injected"):
        query.task(0, 0, [b"a"], RuntimeError("injected"))
    assert query.visible() == {}

    written = query.task(0, 0, [b"a", b"b"], [b"c"])

    assert written.rows == 3
    assert query.visible() == Counter([b"a", b"b", b"c"])


def test_no_transaction_outlives_its_task(query: Query) -> None:
    """Whether a task fails, commits, or compares; its id is that of the query and its number."""
    first, second = f"query-{query.topic}-0", f"query-{query.topic}-1"

    def fails_in_transaction() -> Rows:
        deadline = time.monotonic() + 30
        while query.transactions().get(first) != "Ongoing":
            assert time.monotonic() < deadline
        raise RuntimeError("injected")

    with pytest.raises(RuntimeError, match="injected"):
        query.task(0, 0, [b"a"], [b"b"], fails_in_transaction)
    assert query.transactions()[first] != "Ongoing"

    query.task(0, 0, [b"a"])
    query.task(0, 1, [b"b"])
    query.task(1, 0, [b"c"])
    query.run = "run 2"
    query.task(1, 0, [b"c"])

    states = query.transactions()
    assert set(states) == {first, second}
    assert "Ongoing" not in states.values(), states


def test_a_batch_that_is_repeated_is_compared_and_not_written(query: Query) -> None:
    """The driver died between the tasks and Spark's commit log; rows come in another order."""
    first = [query.task(0, 0, [b"a", b"b"]), query.task(0, 1, [b"c"]), query.task(0, 2)]
    query.run = "run 2"

    again = [query.task(0, 0, [b"b"], [b"a"]), query.task(0, 1, [b"c"]), query.task(0, 2)]

    assert again == first
    query.writer.commit(list(again), 0)
    query.task(1, 0, [b"d"])
    assert query.visible() == Counter([b"a", b"b", b"c", b"d"])


def test_a_plan_that_gives_other_rows_ends_the_query_with_the_way_out(query: Query) -> None:
    """Number and content count; nothing is written."""
    query.task(0, 0, [b"a", b"b"])
    query.run = "run 2"

    with pytest.raises(ConfigError, match=r"task 0 of batch 0 has 1 rows, but .* committed 2 rows"):
        query.task(0, 0, [b"a"])
    with pytest.raises(ConfigError, match=r"committed other rows.*Restart the query with the plan"):
        query.task(0, 0, [b"a", b"x"])
    assert query.visible() == Counter([b"a", b"b"])


def test_a_batch_with_another_number_of_tasks_ends_the_query_and_is_not_written_again(
    query: Query,
) -> None:
    """The error names both numbers; with the first number the query continues."""
    query.writer.commit([query.task(0, 0, [b"a"]), query.task(0, 1, [b"b"])], 0)
    fewer = [query.task(1, 0, [b"c", b"d"])]
    with pytest.raises(
        ConfigError, match=r"batch 1 has 1 tasks, and the first .* had 2.*\.repartition\(2\)"
    ):
        query.writer.commit(list(fewer), 1)

    query.run = "run 2"
    query.writer.commit([query.task(1, 0, [b"d"]), query.task(1, 1, [b"c"])], 1)
    query.writer.commit([query.task(2, 0, [b"e"]), query.task(2, 1, [b"f"])], 2)

    assert query.visible() == Counter([b"a", b"b", b"c", b"d", b"e", b"f"])


def test_a_complete_batch_that_is_repeated_with_other_rows_ends_the_query(query: Query) -> None:
    """The first batch is noted as complete, so its total is compared."""
    query.writer.commit([query.task(0, 0, [b"a"])], 0)
    query.run = "run 2"

    with pytest.raises(ConfigError, match=r"batch 0 has 2 rows, but an earlier .* 1 rows for"):
        query.writer.commit([query.task(0, 0, [b"a", b"b"])], 0)
    assert query.visible() == Counter([b"a"])


def test_a_task_without_an_entry_waits_until_the_rows_of_others_are_known_to_be_the_same(
    query: Query,
) -> None:
    """Killed between two tasks of a batch: task 0 had committed, task 1 had not."""
    query.task(0, 0, [b"a"])
    query.run = "run 2"
    late: list[Written] = []
    waiting = threading.Thread(target=lambda: late.append(query.task(0, 1, [b"b"])))
    waiting.start()
    time.sleep(1)
    assert not late

    query.task(0, 0, [b"a"])
    waiting.join(30)

    assert late[0].rows == 1
    assert query.visible() == Counter([b"a", b"b"])


def test_fewer_tasks_after_a_kill_write_no_row_a_second_time(query: Query) -> None:
    """The rows of task 1 would be those of task 0 now, and no task 1 comes to compare them."""
    query.task(0, 1, [b"b"])
    query.run = "run 2"
    query.options["kafka.transaction.timeout.ms"] = "1000"

    with pytest.raises(ConfigError, match=r"committed the rows of task 1 of batch 0, and no such"):
        query.task(0, 0, [b"a", b"b"])

    assert query.visible() == Counter([b"b"])


def test_a_second_attempt_at_the_same_time_fences_the_first(query: Query) -> None:
    """Speculation: Spark starts a slow task a second time, and takes the one that ends first."""
    slow, fast = threading.Event(), threading.Event()
    failed: list[BaseException] = []

    def second_half() -> Rows:
        slow.set()
        assert fast.wait(30)
        return [b"b"]

    def first() -> None:
        try:
            query.task(0, 0, [b"a"], second_half)
        except BaseException as error:
            failed.append(error)

    # As on another machine: a process has one producer per transactional id.
    other = Query(query.topics, query.topic)
    other.options["kafka.client.id"] = "another machine"
    thread = threading.Thread(target=first)
    thread.start()
    assert slow.wait(30)

    other.task(0, 0, [b"a"], [b"b"])
    fast.set()
    thread.join(30)

    assert isinstance(failed[0], ProducerFenced), failed
    assert query.visible() == Counter([b"a", b"b"])


def test_a_checkpoint_that_is_older_than_the_ledger_is_refused(query: Query) -> None:
    """Restored from a backup: its batches have been written since."""
    for batch in range(3):
        query.task(batch, 0, [b"%d" % batch])
    query.run = "run 2"

    with pytest.raises(ConfigError, match=r"ledger has batch 2 .* continues with batch 1"):
        query.task(1, 0, [b"1"])
    assert query.visible() == Counter([b"0", b"1", b"2"])


def test_a_ledger_that_forgets_is_refused(query: Query) -> None:
    """With cleanup.policy=delete the entries would be gone after a week."""
    query.topics.create(query.options["ledgerTopic"])

    with pytest.raises(ConfigError, match=r"ledger has cleanup.policy=delete.*ledgerTopic"):
        query.task(0, 0, [b"a"])
    assert query.visible() == {}


def test_the_ledger_is_a_compacted_topic_with_an_entry_per_task(query: Query) -> None:
    """Entries do not expire, and the first batch has the number of tasks."""
    query.writer.commit([query.task(0, 0, [b"a"]), query.task(0, 1, [b"b", b"c"])], 0)
    ledger = query.options["ledgerTopic"]

    async def work(cluster: Cluster) -> tuple[str | None, dict[str, dict[str, object]]]:
        resource = aiokq.ConfigResource(aiokq.ConfigResourceType.TOPIC, ledger)
        async with cluster.admin() as admin:
            configs = await admin.describe_configs([resource], raise_errors=True)
        entries = {}
        async for batch in cluster.read((ledger, 0), isolation_level="read_committed"):
            for record in batch:
                entries[(record.key or b"").decode()] = json.loads(record.value or b"")
        return configs[resource].entries["cleanup.policy"].value, entries

    policy, entries = query.topics.run(work)

    id_ = f"query-{query.topic}"
    assert policy == "compact"
    assert set(entries) == {f"{id_}/0", f"{id_}/1", f"{id_}/batch"}
    assert (entries[f"{id_}/1"]["batch"], entries[f"{id_}/1"]["rows"]) == (0, 2)
    assert (entries[f"{id_}/batch"]["tasks"], entries[f"{id_}/batch"]["rows"]) == (2, 3)
