"""`aiokq users`: whole commands on a broker in memory."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.unit.cli.harness import CommandLine, SimulatedSession


def test_a_user_is_added_listed_and_removed(cli: CommandLine, tmp_path) -> None:
    """Without a listener that offers SCRAM, with both mechanisms."""
    file = tmp_path / "password"
    file.write_text("geheim\n")
    added = cli("users", "add", "alice", "--password-file", str(file))
    assert added.lines == ["alice: SCRAM-SHA-256 set", "alice: SCRAM-SHA-512 set"]
    assert "no listener offers SCRAM" in added.complaint
    one = cli(
        "users", "add", "bob", "--password-file", "-", "--mechanism", "SCRAM-SHA-512",
        "--iterations", "8192", stdin=b"geheim\n",
    )  # fmt: skip
    assert one.lines == ["bob: SCRAM-SHA-512 set"]
    listed = cli("users", "list", "--json")
    assert listed.json == [
        {"user": "alice", "mechanism": "SCRAM-SHA-256", "iterations": 4096},
        {"user": "alice", "mechanism": "SCRAM-SHA-512", "iterations": 4096},
        {"user": "bob", "mechanism": "SCRAM-SHA-512", "iterations": 8192},
    ]
    assert cli("users", "list", "bob").lines[-1].split() == ["bob", "SCRAM-SHA-512", "8192"]
    removed = cli("users", "remove", "alice", "bob", "--json")
    assert [each["user"] for each in removed.json] == ["alice", "alice", "bob"]
    assert cli("users", "list", "--json").json == []
    assert "geheim" not in f"{added} {one} {listed}"


def test_users_that_do_not_exist_are_named(cli: CommandLine) -> None:
    """With --if-exists they are no error."""
    failed = cli("users", "list", "nobody")
    assert (failed.code, "nobody" in failed.complaint) == (1, True)
    failed = cli("users", "remove", "nobody")
    assert (failed.code, "nobody: there is no such credential" in failed.complaint) == (1, True)
    assert cli("users", "remove", "nobody", "--if-exists").code == 0


def test_the_password_is_not_an_argument(cli: CommandLine, tmp_path) -> None:
    """Other users of the machine can read the arguments of a process."""
    assert cli("users", "add", "alice", "geheim").code == 2
    assert cli("users", "add", "alice", "--password", "geheim").code == 2
    assert cli("users", "add", "alice").code == 2  # no terminal to ask at
    for text in ("", "\n", "two\nlines\n"):
        file = tmp_path / "password"
        file.write_text(text)
        refused = cli("users", "add", "alice", "--password-file", str(file))
        assert (refused.code, "only line" in refused.complaint) == (2, True)
    missing = cli("users", "add", "alice", "--password-file", str(tmp_path / "missing"))
    assert missing.code == 2
    assert cli("users", "list", "--json").json == []


def test_wrong_options_are_wrong_usage(cli: CommandLine) -> None:
    """Before a broker is asked."""
    for options in (["--mechanism", "PLAIN"], ["--iterations", "1"], ["--iterations", "99999"]):
        assert cli("users", "add", "alice", "--password-file", "-", *options).code == 2


LOCAL = "listener.name.plaintext.sasl.enabled.mechanisms"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"sasl.enabled.mechanisms": "SCRAM-SHA-512"}, {"SCRAM-SHA-512"}),
        ({"sasl.enabled.mechanisms": "PLAIN, SCRAM-SHA-256"}, {"SCRAM-SHA-256"}),
        ({LOCAL: "SCRAM-SHA-256"}, {"SCRAM-SHA-256"}),
        (
            {"sasl.enabled.mechanisms": "SCRAM-SHA-512", LOCAL: "SCRAM-SHA-256"},
            {"SCRAM-SHA-256", "SCRAM-SHA-512"},
        ),
    ],
)
def test_a_user_gets_the_mechanisms_that_a_listener_offers(
    settings: Mapping[str, str],
    expected: set[str],
    capsysbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A credential for another mechanism is of no use, or even the only one."""
    with SimulatedSession(settings) as session:
        cli = CommandLine(session, capsysbinary, monkeypatch)
        assert cli("users", "add", "alice", "--password-file", "-", stdin=b"x").code == 0
        listed = cli("users", "list", "--json").json
        assert {each["mechanism"] for each in listed} == expected


def test_no_credential_keeps_an_earlier_password(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listener may offer its mechanism later."""
    with SimulatedSession({"sasl.enabled.mechanisms": "SCRAM-SHA-512"}) as session:
        cli = CommandLine(session, capsysbinary, monkeypatch)
        added = cli(
            "users", "add", "alice", "--password-file", "-", "--mechanism", "SCRAM-SHA-256",
            stdin=b"old",
        )  # fmt: skip
        assert added.lines == ["alice: SCRAM-SHA-256 set"]
        changed = cli("users", "add", "alice", "--password-file", "-", stdin=b"new")
        assert changed.lines == ["alice: SCRAM-SHA-256 set", "alice: SCRAM-SHA-512 set"]


def test_a_user_gets_both_mechanisms_if_the_brokers_do_not_say(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An administrator of users needs Alter on the cluster, and not DescribeConfigs."""
    settings = {"sasl.enabled.mechanisms": "SCRAM-SHA-512"}
    with SimulatedSession(settings, acls=["User:ANONYMOUS Allow Alter Cluster"]) as session:
        cli = CommandLine(session, capsysbinary, monkeypatch)
        added = cli("users", "add", "alice", "--password-file", "-", stdin=b"x")
        assert added.lines == ["alice: SCRAM-SHA-256 set", "alice: SCRAM-SHA-512 set"]
        assert not added.err
