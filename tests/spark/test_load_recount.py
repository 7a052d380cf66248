"""Verification of offsets without rows: the log is asked whether they had records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyarrow import parquet

from aiokq.spark import load, verify_load
from tests.peers.apache_kafka import ApacheKafka
from tests.spark.gaps import Transactions, compact
from tests.spark.loads import options, seen
from tests.spark.logs import places
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# On a busy machine a batch may take half a minute.
pytestmark = [pytest.mark.timeout(900), pytest.mark.full]


def test_offsets_without_a_row_are_looked_up_in_the_log(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """A row missing in both file and manifest is no gap of compaction: the log has the record."""
    topics.create(topic)
    topics.fill(topic, 20)
    wanted = options(topics, topic, tmp_path / "out", starting=json.dumps({topic: {"0": 8}}))
    load(wanted, spark=spark)
    lose_the_first_row(tmp_path / "out", 12)

    found = verify_load(tmp_path / "out", kafka=wanted.kafka)

    assert found.problems == [
        f"{topic}-0, offsets 8 to 19: the log has 12 records, the files have 11"
    ]
    topics.delete_records(topic, {0: 9})
    found = verify_load(tmp_path / "out", kafka=wanted.kafka)
    assert (found.sound, found.gaps) == (True, 1)
    assert "cannot be compared with the log, which starts at 9 now" in found.notes[0]


def lose_the_first_row(root: Path, rows: int) -> None:
    """Remove the first row from the only file of a load and from its manifest."""
    (file,) = (root / "batch_id=0").glob("*.parquet")
    size = file.stat().st_size
    parquet.write_table(parquet.ParquetFile(file).read().slice(1), file)
    path = root / "_aiokq_manifest" / "0.json"
    text = path.read_text().replace(f'"rows": {rows}', f'"rows": {rows - 1}')
    path.write_text(text.replace(f'"bytes": {size}', f'"bytes": {file.stat().st_size}'))


def test_what_compaction_took_away_is_no_loss(
    spark: SparkSession, either: Topics, topic: str, tmp_path: Path
) -> None:
    """The gaps are counted; a lost row among them is still reported."""
    compact(either, topic)
    log = places(either, topic)
    wanted = options(either, topic, tmp_path / "out")

    load(wanted, spark=spark)

    found = verify_load(tmp_path / "out", kafka=wanted.kafka)
    assert (found.problems, found.notes) == ([], [])
    assert seen(tmp_path / "out") == [(p, offset) for p, offset, _ in log]
    assert found.gaps == found.offsets - len(log) > 20
    lose_the_first_row(tmp_path / "out", len(log))
    (problem,) = verify_load(tmp_path / "out", kafka=wanted.kafka).problems
    assert problem.endswith(f"the log has {len(log)} records, the files have {len(log) - 1}")


@pytest.mark.kafka
@pytest.mark.parametrize("committed", [False, True])
def test_aborted_records_and_markers_are_no_loss(
    spark: SparkSession, apache: ApacheKafka, topic: str, tmp_path: Path, committed: bool
) -> None:
    """Batches end within transactions; what was aborted counts as the load was told to read."""
    topics = Topics(apache.bootstrap_servers)
    topics.create(topic)
    work = Transactions(topics, topic)
    for count in (3, 1, 4):
        work.commit(count)
        work.abort(count + 2)
    log = places(topics, topic, "read_committed" if committed else "read_uncommitted")
    wanted = options(topics, topic, tmp_path / "out", read_committed=committed, records_per_batch=8)

    summary = load(wanted, spark=spark)

    assert summary.batches > 1
    assert seen(tmp_path / "out") == [(p, offset) for p, offset, _ in log]
    found = verify_load(tmp_path / "out", kafka=wanted.kafka)
    assert (found.problems, found.notes) == ([], [])
    # Six markers; and fourteen records that were aborted.
    assert (found.offsets, found.gaps) == (28, 20 if committed else 6)
