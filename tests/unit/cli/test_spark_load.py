"""`aiokq spark load`: options that are refused before Spark starts, and the recount."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
from aiokq.cli.load_run import refused
from aiokq.errors import KafkaError
from aiokq.spark.loading.failures import LoadFailed
from aiokq.spark.loading.options import OptionError
from aiokq.spark.loading.summary import LoadProgress, LoadSummary
from tests.unit.cli.harness import CommandLine
from tests.unit.spark.loading.worlds import World, options


def run(alone: CommandLine, *arguments: object):
    return alone("spark", "load", *map(str, arguments))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--to", "x"], "TOPIC: give either names of topics"),
        (["t", "--to", "s3://x"], "--to: s3://x: a directory is needed"),
        (["t", "--to", "x", "--partition-by", "hour"], "--partition-by: 'hour' is neither"),
        (["t", "--to", "x", "--value-format", "avro"], "--value-schema: value format avro needs"),
        (["t", "--to", "x", "--from", "17"], "--from 17: each partition has its own offsets"),
        (["t", "--to", "x", "--catalog", "uri"], "--catalog needs NAME=VALUE"),
        (["t", "--to", "x", "--table", "a.b"], "--table: only format iceberg"),
    ],
)
def test_wrong_usage_names_the_option(
    alone: CommandLine, arguments: list[str], complaint: str
) -> None:
    """The error names the flag, and the exit code is 2."""
    result = run(alone, *arguments)

    assert result.code == 2
    assert complaint in result.complaint


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            OptionError("starting", "t-0 ends at 1; with fail_on_data_loss=False it begins there"),
            "--from: t-0 ends at 1; with --skip-lost it begins there",
        ),
        (
            LoadFailed("gone. With fail_on_data_loss=False the load continues"),
            "gone. With --skip-lost the load continues",
        ),
        (
            LoadFailed("Check kafka.bootstrap.servers, and kafka.security.protocol"),
            "Check --bootstrap-servers, and security.protocol",
        ),
    ],
)
def test_errors_name_what_can_be_typed(error: KafkaError, line: str) -> None:
    """Regression: errors named options of Spark's source, which the command does not have."""
    with pytest.raises(KafkaError) as caught, refused(usage=False):
        raise error
    assert str(caught.value) == line


def test_a_schema_that_cannot_be_read_is_one_line(alone: CommandLine, tmp_path: Path) -> None:
    """The file is read before the cluster is contacted and Spark is started."""
    schema = tmp_path / "flight.avsc"
    schema.write_text('{"type": "recor')

    result = run(
        alone,
        *("t", "--to", tmp_path / "out", "--value-format", "avro", "--value-schema", schema),
    )

    assert result.code == 1
    assert "--value-schema: the text begins like JSON, but is not valid JSON" in result.complaint
    assert not (tmp_path / "out").exists()


def test_a_target_is_recounted_without_topics(alone: CommandLine, tmp_path: Path) -> None:
    """--verify alone starts no Spark; a problem is exit code 1."""
    world = World(options(tmp_path / "out"))
    world.load(0)

    sound = run(alone, "--to", tmp_path / "out", "--verify")
    next((tmp_path / "out" / "batch_id=0").iterdir()).unlink()
    broken = run(alone, "--to", tmp_path / "out", "--verify", "--json")

    assert (sound.code, sound.err) == (0, "")
    assert sound.lines == [
        f"{tmp_path / 'out'}: sound; 40 rows and 20 dead letters in 1 batches, of 60 offsets"
    ]
    assert broken.code == 1
    assert not broken.json["sound"]
    assert broken.json["rows"] == 0


class Run:
    """A load that is ended by signals."""

    def __init__(self, *events: signal.Signals | Exception, begun: bool = False) -> None:
        self.events = events
        self.begun = begun

    def __call__(self, options: object, *, progress: Any, **given: Any) -> LoadSummary:
        if self.begun:
            progress(LoadProgress(0, 1, None, 1))
        for event in self.events:
            if isinstance(event, Exception):
                raise event
            signal.raise_signal(event)
        return LoadSummary(Path("x"), "query", interrupted=True)


@pytest.mark.parametrize(
    ("load", "code", "lines"),
    [
        (
            Run(signal.SIGTERM),
            143,
            ["aiokq: ended before the load began; the same command continues the load"],
        ),
        (
            Run(signal.SIGINT, begun=True),
            130,
            ["aiokq: ending after this batch; press Ctrl-C again to end now"],
        ),
        (
            Run(signal.SIGTERM, LoadFailed("Spark's JVM is\ngone"), begun=True),
            143,
            [
                "aiokq: ending after this batch; press Ctrl-C again to end now",
                "aiokq: ended at once (Spark's JVM is gone); the same command continues the load",
            ],
        ),
        (
            Run(signal.SIGTERM, signal.SIGTERM, begun=True),
            143,
            [
                "aiokq: ending after this batch; press Ctrl-C again to end now",
                "aiokq: ended at once; the same command continues the load",
            ],
        ),
    ],
    ids=["starting", "loading", "with Spark", "twice"],
)
def test_a_signal_is_told_in_a_line_and_by_the_exit_code(
    alone: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    load: Run,
    code: int,
    lines: list[str],
) -> None:
    """Regression: a signal to all processes during the start was reported as a failed JVM start."""
    monkeypatch.setattr("aiokq.spark.loading.run.load", load)

    result = run(alone, "t", "--to", "x")

    assert (result.code, result.err.splitlines()) == (code, lines)


def test_a_recount_is_told_where_dead_letters_and_checkpoint_are(
    tmp_path: Path, alone: CommandLine
) -> None:
    """Each error names its own flag."""
    places = {name: tmp_path / name for name in ("dead_letter", "checkpoint")}
    world = World(options(tmp_path / "out", **places))
    world.load(0)
    (tmp_path / "dead_letter").rename(tmp_path / "letters")

    result = run(
        alone,
        *("--to", tmp_path / "out", "--verify"),
        *("--dead-letter", tmp_path / "letters", "--checkpoint", tmp_path / "checkpoint"),
    )

    assert result.code == 0
    assert "sound; 40 rows and 20 dead letters" in result.lines[0]
    assert result.err == ""
