"""Each number that a command takes: out of range, of thousands of digits, and in other digits.

The numeric options are read from the commands.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.models import ArgumentInfo, OptionInfo

from aiokq.cli.app import app
from aiokq.core.limits import INT16_MAX, INT32_MAX, INT64_MAX, MAX_SECONDS
from tests.unit.cli.harness import SERVERS, CommandLine

HUGE = "9" * 5000
"""More digits than `int` converts."""

PORT_MAX = 65535

MAXIMA: dict[str | None, float] = {
    "--duration-filter": INT64_MAX,
    "--every": MAX_SECONDS,
    "--http": PORT_MAX,
    "--iterations": 16384,
    "--max-messages": INT64_MAX,
    "--producer-epoch": INT16_MAX,
    "--producer-id": INT64_MAX,
    "--records-per-batch": INT64_MAX,
    "--replication-factor": INT16_MAX,
    "--rows-per-file": INT64_MAX,
    "--shift-by": INT64_MAX,
    "--partition-key": 2**32 - 1,
    "--start-offset": INT64_MAX,
    "--tcp": PORT_MAX,
    "--to-offset": INT64_MAX,
    "--transaction-bytes": INT64_MAX,
    "--transaction-rows": INT64_MAX,
    "--transaction-seconds": MAX_SECONDS,
}
"""The maximum of each flag that has another one than partitions, node ids and counts."""


class Numeric(typing.NamedTuple):
    """A numeric option or argument of a command."""

    command: tuple[str, ...]
    flag: str | None
    """None for an argument."""
    low: float | None
    """The minimum; None if the number may be negative."""

    @property
    def high(self) -> float:
        return MAXIMA.get(self.flag, INT32_MAX)

    def __str__(self) -> str:
        return " ".join((*self.command, self.flag or "ARGUMENT"))


def numeric(group: typer.Typer = app, path: tuple[str, ...] = ()) -> Iterator[Numeric]:
    for inner in group.registered_groups:
        assert inner.name is not None
        assert inner.typer_instance is not None
        yield from numeric(inner.typer_instance, (*path, inner.name))
    for registered in group.registered_commands:
        assert registered.callback is not None
        name = registered.name or registered.callback.__name__.replace("_", "-")
        hints = typing.get_type_hints(registered.callback, include_extras=True)
        for parameter, hint in hints.items():
            if typing.get_origin(hint) is not Annotated:
                continue
            kind, info = typing.get_args(hint)
            if {int, float} & set(plain(kind)):
                assert isinstance(info, OptionInfo | ArgumentInfo)
                yield Numeric((*path, name), flag(parameter, info), info.min)


def plain(kind: object) -> list[object]:
    """Return the types of which a union or a collection consists."""
    parts = typing.get_args(kind)
    return [each for part in parts for each in plain(part)] if parts else [kind]


def flag(parameter: str, info: OptionInfo | ArgumentInfo) -> str | None:
    if isinstance(info, ArgumentInfo):
        return None
    names = [info.default, *(info.param_decls or ())]
    longest = [name for name in names if isinstance(name, str) and name.startswith("--")]
    return longest[0]


NUMERIC = sorted(numeric(), key=str)


def given(each: Numeric, number: str) -> tuple[str, ...]:
    """Return the command with the number, but without other arguments."""
    return (*each.command, *(("--",) if each.flag is None else (each.flag,)), number)


def test_the_numbers_are_found():
    """The tests below would pass without any."""
    assert len(NUMERIC) > 30
    assert set(MAXIMA) <= {each.flag for each in NUMERIC}


@pytest.mark.parametrize("each", NUMERIC, ids=str)
def test_a_number_out_of_range_is_wrong_usage(alone: CommandLine, each: Numeric):
    """Regression: the client raised a ValueError, and the command ended with a traceback."""
    low = -each.high if each.low is None else each.low
    for number in (low - 1, each.high + 1, 10**25, HUGE):
        done = alone(*given(each, str(number)), servers=None)
        assert (done.code, done.out) == (2, b"")
        assert "Invalid value" in done.complaint
        assert each.flag is None or each.flag in done.complaint
    for number in (low, each.high):
        assert "Invalid value" not in alone(*given(each, str(number)), servers=None).err


@pytest.mark.parametrize(
    "arguments",
    [
        ("consume", "t", "--from", "{}"),
        ("consume", "t", "--from", "-{}"),
        ("consume", "t", "--from", "@{}"),
        ("consume", "t", "--from", "P{}D"),
        ("spark", "load", "t", "--to", "out", "--from", "{}"),
        ("offsets", "t", "--at", "@{}"),
        ("groups", "reset", "g", "--all-topics", "--to-datetime", "@{}"),
        ("groups", "reset", "g", "--topic", "t:{}", "--to-latest"),
        ("groups", "rewind", "g", "--topic", "t:0,{}", "--to-latest"),
        ("partitions", "reassign", "t:0={}"),
        ("partitions", "reassign", "t:0=1,{}"),
        ("partitions", "reassign", "t:{}=1"),
        ("partitions", "reassign", "--cancel", "t:{}"),
        ("cluster", "features", "--upgrade", "x={}"),
        ("cluster", "features", "--downgrade", "x={}"),
        ("storage", "format", "--cluster-id", "x", "--data-dir", "none", "--feature", "x={}"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize(
    "number",
    [HUGE, "9" * 25, "1_0", "\u0661", "+1"],
    ids=["huge", "25 digits", "underscore", "other digit", "sign"],
)
def test_a_number_within_a_text_consists_of_ascii_digits(
    alone: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    number: str,
):
    """Regression: `int` accepts underscores and other digits, and raises for 4301 digits."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", SERVERS)
    done = alone(*(each.format(number) for each in arguments), servers=None)
    assert done.code == 2
    assert number[:30] in done.complaint
    assert len(done.complaint) < 350


def test_partition_and_offset_of_a_dump_may_have_any_number_of_digits(
    cli: CommandLine, tmp_path: Path
):
    """Regression: the import ended with a traceback; the others are imported."""
    dump = tmp_path / "dump"
    root = "/consumers/g/offsets/t"
    dump.write_text(f"{root}/{HUGE}:5\n{root}/0:{HUGE}\n{root}/1:0\n")
    cli("topics", "create", "t", "--partitions", "2")
    done = cli("groups", "import-zookeeper", str(dump))
    first, second, *_ = done.err.splitlines()
    assert done.code == 1
    assert "is not a partition" in first
    assert "is not an offset of t-0" in second
    assert max(map(len, (first, second))) < 150
    assert "would be imported" in done.lines[-1]
