"""DescribeUserScramCredentials and AlterUserScramCredentials: what is stored, told and refused."""

from __future__ import annotations

import logging

from aiokq import wire
from aiokq.broker.embedded import EmbeddedCluster
from tests.unit.broker.harness import Broker


def upsertion(name, mechanism=1, iterations=4096):
    return wire.ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=b"salt",
        salted_password=b"salted",
    )


async def alter(broker, *changes):
    """Return the error code of each user."""
    response = await broker.ask(
        wire.AlterUserScramCredentialsRequest(
            deletions=[one for one in changes if isinstance(one, wire.ScramCredentialDeletion)],
            upsertions=[one for one in changes if isinstance(one, wire.ScramCredentialUpsertion)],
        ),
        0,
    )
    for result in response.results:
        assert (result.error_message is None) == (result.error_code == 0)
    return {result.user: result.error_code for result in response.results}


async def describe(broker, *names):
    """Return error code, and mechanisms with iterations, by user; of all users without names."""
    response = await broker.ask(
        wire.DescribeUserScramCredentialsRequest(
            users=[wire.UserName(name=name) for name in names] if names else None
        ),
        0,
    )
    assert response.error_code == 0
    return {
        result.user: (
            result.error_code,
            [(info.mechanism, info.iterations) for info in result.credential_infos],
        )
        for result in response.results
    }


async def test_what_was_set_is_told_also_after_a_restart():
    """By user; an empty list of users stands for all, as null does."""
    broker = Broker()
    async with broker:
        assert await alter(broker, upsertion("alice"), upsertion("bob", 2, 8192)) == {
            "alice": 0,
            "bob": 0,
        }
        assert await alter(broker, upsertion("alice", 2, 5000)) == {"alice": 0}
        every = {"alice": (0, [(1, 4096), (2, 5000)]), "bob": (0, [(2, 8192)])}
        assert await describe(broker) == every
        empty = await broker.ask(wire.DescribeUserScramCredentialsRequest(users=[]), 0)
        assert [result.user for result in empty.results] == ["alice", "bob"]
    async with Broker(broker.files) as again:
        assert await describe(again) == every
        deletion = wire.ScramCredentialDeletion(name="alice", mechanism=1)
        assert await alter(again, deletion) == {"alice": 0}
        assert await describe(again, "alice") == {"alice": (0, [(2, 5000)])}
        assert await alter(again, deletion) == {"alice": 91}


async def test_missing_and_repeated_users_have_their_errors():
    """The others are told."""
    async with Broker() as broker:
        await alter(broker, upsertion("alice"))
        assert await describe(broker, "alice", "nobody") == {
            "alice": (0, [(1, 4096)]),
            "nobody": (91, []),
        }
        assert await describe(broker, "alice", "alice", "nobody", "nobody") == {
            "alice": (92, []),
            "nobody": (92, []),
        }
        assert await describe(broker, "") == {"": (91, [])}


async def test_one_wrong_change_leaves_the_others():
    """Users are independent of each other."""
    async with Broker() as broker:
        codes = await alter(
            broker,
            upsertion("alice"),
            upsertion("bob", iterations=1),
            upsertion("carol", mechanism=7),
            upsertion("dave"),
            upsertion("dave", 2),
        )
        assert codes == {"alice": 0, "bob": 93, "carol": 33, "dave": 92}
        assert await describe(broker) == {"alice": (0, [(1, 4096)])}


async def test_changes_are_in_the_audit_log(caplog):
    """With who made them and the mechanism, because the user may have another one; no secret."""
    async with Broker() as broker:
        with caplog.at_level(logging.INFO, "aiokq.audit"):
            await alter(broker, upsertion("alice", 2))
            await alter(broker, upsertion("alice"), upsertion("bob", iterations=1))
            await alter(broker, wire.ScramCredentialDeletion(name="alice", mechanism=1))
        lines = [one.getMessage() for one in caplog.records if one.name == "aiokq.audit.change"]
        assert all("principal=User:ANONYMOUS" in line for line in lines)
        assert [line.partition("item=")[2] for line in lines] == [
            '"alice: SCRAM-SHA-512 set"',
            '"alice: SCRAM-SHA-256 set"',
            '"alice: SCRAM-SHA-256 deleted"',
        ]
        assert "salt" not in caplog.text


async def test_a_reset_keeps_users():
    """A test that shares a cluster must still be able to log in."""
    async with Broker() as broker:
        await alter(broker, upsertion("alice"))
        await broker.create("t")
        await broker.node.reset()
        assert len(broker.node.topics) == 0
        assert await describe(broker) == {"alice": (0, [(1, 4096)])}


async def test_a_snapshot_has_the_users(tmp_path):
    """And so has a cluster that is restored from it."""
    async with EmbeddedCluster() as kafka:
        await kafka.node.metadata.alter_scram_credentials((), [upsertion("alice")])
        await kafka.snapshot(tmp_path / "copy")
    async with EmbeddedCluster(restore_from=tmp_path / "copy") as kafka:
        stored = kafka.node.storage.metadata.image.principals.scram_credentials
        assert list(stored) == [("alice", 1)]
