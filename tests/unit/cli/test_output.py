"""Output: tables in pipes and on terminals, errors of single items, closed pipes."""

from __future__ import annotations

import io

import pytest

from aiokq.cli.error_text import explain, one_line
from aiokq.cli.output import Output, OutputClosed, error_json
from aiokq.connection.handshake import TOO_OLD, ClosedOnApiVersions
from aiokq.core.errors import (
    ConnectionLost,
    RequestTimeout,
    TopicExists,
    UnknownTopicOrPartition,
)


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_a_table_to_a_pipe_is_plain_and_whole(capsys: pytest.CaptureFixture[str]):
    """awk and cut read the columns, so that a truncated name would be a wrong name."""
    name = "x" * 300
    Output().table(("topic", "partitions"), [(name, 12), ("[red]y", None)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["topic", "partitions"]
    assert lines[1].split() == [name, "12"]
    assert lines[2].split() == ["[red]y", "-"]


def test_a_table_without_rows_still_names_its_columns(capsys: pytest.CaptureFixture[str]):
    """An empty cluster is not an error."""
    Output().table(("topic", "partitions"), [])
    assert capsys.readouterr().out == "topic  partitions\n"


def test_a_table_on_a_terminal_shows_names_as_they_are(monkeypatch: pytest.MonkeyPatch):
    """Rich would take [red] for a colour and :smile: for an emoji."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    Output().table(("topic",), [("[red]:smile:",)])
    assert "[red]:smile:" in terminal.getvalue()


def test_what_the_terminal_cannot_show_is_escaped(monkeypatch: pytest.MonkeyPatch):
    """One strange character must not end a listing with a UnicodeEncodeError."""
    buffer = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(buffer, encoding="ascii"))
    out = Output()
    out.line("größe")
    out.flush()
    assert buffer.getvalue() == b"gr\\xf6\\xdfe\n"


def test_a_problem_is_a_line_and_the_exit_code(capsys: pytest.CaptureFixture[str]):
    """The other items are done, and the exit code reports the failure."""
    out = Output()
    assert out.exit_code == 0
    out.problem("orders", TopicExists("topic 'orders'\nexists"))
    assert out.exit_code == 1
    assert capsys.readouterr().err == (
        "aiokq: orders: topic 'orders' exists (TOPIC_ALREADY_EXISTS)\n"
    )


@pytest.mark.parametrize("call", ["line", "raw", "flush"])
def test_a_broken_pipe_is_told_apart(monkeypatch: pytest.MonkeyPatch, call: str):
    """Typer handles BrokenPipeError itself."""

    class Gone(Terminal):
        @property
        def buffer(self) -> Gone:
            return self

        def fail(self, *arguments: object) -> None:
            raise BrokenPipeError

        write = flush = fail

    monkeypatch.setattr("sys.stdout", Gone())
    out = Output()
    with pytest.raises(OutputClosed):
        getattr(out, call)(*{"line": ("x",), "raw": (b"x",), "flush": ()}[call])


def test_an_error_is_explained_with_its_cause():
    """A timeout alone does not explain what to do."""
    error = RequestTimeout("nothing succeeded within 60 s", api="CreateTopics")
    error.__cause__ = ConnectionLost("cannot connect to k:1")
    assert explain(error) == (
        "CreateTopics: nothing succeeded within 60 s; the last error: cannot connect to k:1 -> "
        "check that the broker runs and can be reached: `aiokq doctor -b HOST:PORT`"
    )
    assert "topics list" in explain(UnknownTopicOrPartition())
    assert error_json(None) is None
    assert error_json(TopicExists("there")) == {
        "code": 36,
        "name": "TOPIC_ALREADY_EXISTS",
        "message": "there",
    }


def test_an_error_with_its_own_advice_gets_no_other():
    """The broker runs and can be reached, so the general advice for lost connections is wrong."""
    error = RequestTimeout("nothing succeeded within 60 s")
    error.__cause__ = ClosedOnApiVersions(f"the peer {TOO_OLD}")
    assert "security_protocol=SSL" in explain(error)
    assert "->" not in explain(error)


def test_one_line_is_one_line_whatever_is_in_it():
    """A broker's message may contain anything."""
    assert one_line("a\n\tb  c\x1b[2J\u2028d") == "a b c\\x1b[2J d"
