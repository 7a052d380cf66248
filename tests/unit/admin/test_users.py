"""SCRAM credentials of users, by the admin client against a broker in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from aiokq.admin.client import Admin
from aiokq.admin.users import (
    ScramCredential,
    ScramDeletion,
    ScramUpsertion,
    UserScramAltered,
)
from aiokq.broker.embedded import EmbeddedCluster
from aiokq.core.errors import ConfigError, ResourceNotFound
from tests.sim.harness.simulation import Simulation, run


def with_broker(main: Callable[[Admin], Awaitable[None]]) -> None:
    async def world(simulation: Simulation) -> None:
        async with (
            EmbeddedCluster(environment=simulation.environment(), port=9092),
            Admin("127.0.0.1:9092", _environment=simulation.environment()) as admin,
        ):
            await main(admin)

    run(1, world)


def test_users_are_stored_described_and_deleted() -> None:
    """Both mechanisms of a user in one call, though a broker takes one per request."""

    async def main(admin: Admin) -> None:
        assert dict(await admin.describe_user_scram_credentials()) == {}
        results = await admin.alter_user_scram_credentials(
            [
                ScramUpsertion("alice", "secret"),
                ScramUpsertion("alice", "secret", "SCRAM-SHA-512", 8192, salt=b"salt"),
                ScramUpsertion("bob", "secret", "SCRAM-SHA-512"),
            ],
            raise_errors=True,
        )
        assert list(results) == [
            ("alice", "SCRAM-SHA-256"),
            ("alice", "SCRAM-SHA-512"),
            ("bob", "SCRAM-SHA-512"),
        ]
        assert results["bob", "SCRAM-SHA-512"] == UserScramAltered("bob", "SCRAM-SHA-512")
        found = await admin.describe_user_scram_credentials()
        assert {user: each.credentials for user, each in found.items()} == {
            "alice": (
                ScramCredential("SCRAM-SHA-256", 4096),
                ScramCredential("SCRAM-SHA-512", 8192),
            ),
            "bob": (ScramCredential("SCRAM-SHA-512", 4096),),
        }
        results = await admin.alter_user_scram_credentials(
            [ScramDeletion("alice"), ScramDeletion("bob"), ScramUpsertion("carol", "x")]
        )
        assert isinstance(results["bob", "SCRAM-SHA-256"].error, ResourceNotFound)
        assert set(results.errors) == {("bob", "SCRAM-SHA-256")}
        found = await admin.describe_user_scram_credentials("alice")
        assert found["alice"].credentials == (ScramCredential("SCRAM-SHA-512", 8192),)
        missing = await admin.describe_user_scram_credentials(["nobody", "carol", "nobody"])
        assert isinstance(missing["nobody"].error, ResourceNotFound)
        assert missing["carol"].error is None
        assert dict(await admin.describe_user_scram_credentials([])) == {}

    with_broker(main)


@pytest.mark.parametrize(
    "change",
    [
        ScramUpsertion("", "secret"),
        ScramUpsertion("alice", ""),
        ScramUpsertion("alice", "secret", "SCRAM-SHA-1"),
        ScramUpsertion("alice", "secret", iterations=4095),
        ScramUpsertion("alice", "secret", iterations=16385),
        ScramDeletion("alice", "PLAIN"),
        [ScramDeletion("alice"), ScramUpsertion("alice", "secret")],
        [("alice", "secret")],
    ],
)
def test_wrong_changes_are_refused_before_anything_is_sent(change: object) -> None:
    """And no message shows the password."""

    async def main(admin: Admin) -> None:
        with pytest.raises((ConfigError, ValueError, TypeError)) as refused:
            await admin.alter_user_scram_credentials(change)  # type: ignore[arg-type]
        assert "secret" not in str(refused.value)

    with_broker(main)


def test_no_repr_has_a_secret() -> None:
    """Changes may be logged."""
    change = ScramUpsertion("alice", "secret", salt=b"salty")
    assert "alice" in repr(change)
    assert "secret" not in repr(change)
    assert "salty" not in repr(change)


def test_passwords_are_salted_outside_the_loop() -> None:
    """PBKDF2 takes milliseconds for each change."""
    import threading

    threads: list[threading.Thread] = []

    class Password(str):
        def encode(self, *args: str) -> bytes:  # type: ignore[override]
            threads.append(threading.current_thread())
            return str.encode(self, *args)

    async def main() -> None:
        async with EmbeddedCluster() as kafka, Admin(kafka.bootstrap_servers) as admin:
            await admin.alter_user_scram_credentials(ScramUpsertion("alice", Password("secret")))

    asyncio.run(main())
    assert threads
    assert threading.main_thread() not in threads
