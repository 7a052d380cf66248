"""`aiokq users`: whole commands on a broker in memory."""

from __future__ import annotations

from tests.unit.cli.harness import CommandLine


def test_a_user_is_added_listed_and_removed(cli: CommandLine, tmp_path) -> None:
    """By default with both mechanisms."""
    file = tmp_path / "password"
    file.write_text("geheim\n")
    added = cli("users", "add", "alice", "--password-file", str(file))
    assert added.lines == ["alice: SCRAM-SHA-256 set", "alice: SCRAM-SHA-512 set"]
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
