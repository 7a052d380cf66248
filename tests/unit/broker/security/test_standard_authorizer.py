"""StandardAuthorizer: decisions by ACLs, and what is kept of them."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from aiokq.broker.security.authorization import standard_authorizer
from aiokq.broker.security.authorization.acl_index import EVERY_OPERATION
from aiokq.broker.security.authorization.standard_authorizer import StandardAuthorizer
from aiokq.connection.principal import Principal
from aiokq.connection.request_context import RequestContext
from aiokq.core.acl_types import Operation, ResourceType
from aiokq.wire.cluster_metadata_records import NoOpRecord
from aiokq.wire.principal_records import ClientQuotaRecord, RemoveAccessControlEntryRecord
from tests.unit.broker.security.test_acl_index import record

TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE


def client(name="alice", host="127.0.0.1", kind="User"):
    context = RequestContext(1, f"{host}:5000", host, "PLAINTEXT")
    context.session.principal = Principal(kind, name)
    return context


def authorizer(*lines, **options):
    made = StandardAuthorizer(**options)
    made.load(record(line, number) for number, line in enumerate(lines))
    return made


def allowed(made, who, operation, *names, kind=TOPIC):
    return set(made.authorize(who, operation, kind, names))


def test_only_what_an_acl_allows_is_allowed():
    made = authorizer("User:alice Allow Read Topic:a*", "User:* Deny Read Topic:ab")
    assert allowed(made, client(), READ, "a", "ab", "abc", "b") == {"a", "abc"}
    assert allowed(made, client(), DESCRIBE, "a", "ab") == {"a", "ab"}  # a DENY of READ is no more
    assert not allowed(made, client(), WRITE, "a")
    assert not allowed(made, client("bob"), READ, "a")
    assert not allowed(made, client(kind="Group"), READ, "a")


def test_the_host_counts():
    made = authorizer(
        "User:alice Allow Read Topic:t from 192.0.2.7", "User:alice Allow Read Topic:v from ::1"
    )
    assert allowed(made, client(host="192.0.2.7"), READ, "t") == {"t"}
    assert not allowed(made, client(host="192.0.2.8"), READ, "t")
    assert allowed(made, client(host="[::1]"), READ, "v") == {"v"}


def test_super_users_may_do_everything():
    made = authorizer("User:* Deny All Topic:*", super_users=("User:root", "Group:ops"))
    assert allowed(made, client("root"), READ, "t", "u") == {"t", "u"}
    assert allowed(made, client("ops", kind="Group"), Operation.ALTER, "c", kind=CLUSTER) == {"c"}
    assert made.operations(client("root"), TOPIC, "t") == EVERY_OPERATION
    assert made.authorize_any(client("root"), WRITE, TOPIC)
    assert not allowed(made, client("ROOT"), READ, "t")
    assert not allowed(made, client("ops"), READ, "t")


def test_a_resource_without_any_acl_may_be_open():
    """One ACL, of whomever, closes it."""
    made = authorizer("User:bob Allow Read Topic:t", allows_without_acl=True)
    assert allowed(made, client(), WRITE, "t", "u") == {"u"}
    made.apply([record("User:bob Allow Read Topic:u*", 7)])
    assert not allowed(made, client(), WRITE, "u", "uu")
    made.apply([record("User:bob Deny Write Topic:*", 8)])
    assert not allowed(made, client(), WRITE, "x")
    assert allowed(made, client(), WRITE, "g", kind=ResourceType.GROUP) == {"g"}


def test_a_change_counts_at_once():
    made = authorizer("User:alice Allow Read Topic:t")
    assert allowed(made, client(), READ, "t") == {"t"}
    made.apply([NoOpRecord()])
    made.apply([RemoveAccessControlEntryRecord(id=uuid.UUID(int=0))])
    assert not allowed(made, client(), READ, "t")
    assert list(made.acls()) == []
    made.apply([RemoveAccessControlEntryRecord(id=uuid.UUID(int=0))])  # unknown: ignored
    made.apply([record("User:alice Allow Read Topic:t", 3)])
    assert allowed(made, client(), READ, "t") == {"t"}
    assert [acl.id.int for acl in made.acls()] == [3]


async def test_very_many_changes_are_made_beside_other_tasks_and_count_together(monkeypatch):
    """A client would see a part of them, for example the permission without the denial."""
    monkeypatch.setattr(standard_authorizer, "MANY", 100)
    monkeypatch.setattr(standard_authorizer, "ADDED_AT_ONCE", 10)
    made = authorizer(*(f"User:alice Allow Read Topic:old{number}" for number in range(50)))
    every = {f"{kind}{number}" for kind in ("old", "new") for number in range(50)}
    before = {name for name in every if name.startswith("old")}
    records = [record(f"User:alice Allow Read Topic:new{n}", 100 + n) for n in range(50)]
    records += [RemoveAccessControlEntryRecord(id=uuid.UUID(int=n)) for n in range(50)]
    changing = made.change(records)
    assert changing is not None
    task = asyncio.ensure_future(changing)
    turns = 0
    while not task.done():
        assert allowed(made, client(), READ, *every) == before
        assert len(made.acls()) == 50
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 5
    assert allowed(made, client(), READ, *every) == every - before
    assert {acl.resource_name for acl in made.acls()} == every - before
    # Few changes count at once.
    assert made.change([record("User:* Deny All Topic:new1", 200)]) is None
    assert not allowed(made, client(), READ, "new1")


def test_changes_of_users_and_quotas_leave_the_index_as_it_is():
    """Regression: very many of them made it anew, with all ACLs."""
    made = authorizer("User:alice Allow Read Topic:t")
    index = made._index
    assert allowed(made, client(), READ, "t") == {"t"}
    assert made.change([ClientQuotaRecord()] * 2 * standard_authorizer.MANY) is None
    assert made._index is index
    assert made._clients


def test_any_topic_is_enough_to_write_idempotently():
    assert not authorizer().authorize_any(client(), WRITE, TOPIC)
    for line in ("Topic:t", "Topic:t*", "Topic:*"):
        assert authorizer(f"User:alice Allow Write {line}").authorize_any(client(), WRITE, TOPIC)
    dominated = authorizer("User:alice Allow Write Topic:ab", "User:* Deny Write Topic:a*")
    assert not dominated.authorize_any(client(), WRITE, TOPIC)
    # As Kafka, which first asks for a topic of this name.
    assert authorizer(
        "User:alice Allow Write Topic:hard*", "User:alice Deny Write Topic:h"
    ).authorize_any(client(), WRITE, TOPIC)
    assert authorizer(allows_without_acl=True).authorize_any(client(), WRITE, TOPIC)


def test_what_is_kept_is_bounded(monkeypatch):
    """Neither many clients nor many names fill the memory."""
    monkeypatch.setattr(standard_authorizer, "MOST_CACHED", 50)
    made = authorizer("User:* Allow Read Topic:*")
    for number in range(500):
        who = client(f"u{number % 7}")
        assert allowed(made, who, READ, f"t{number}", "same") == {f"t{number}", "same"}
        kept = sum(len(names) for known in made._clients.values() for names in known)
        assert kept + len(made._clients) <= 50
    long = "n" * 300
    made = authorizer("User:* Allow Read Topic:*")
    assert allowed(made, client(), READ, long) == {long}
    assert not any(long in names for known in made._clients.values() for names in known)


def test_a_client_with_a_long_name_is_not_kept():
    """Regression: the name stayed in the memory after the end of the connection."""
    long = client("n" * 300)
    made = authorizer(f"{long.session.principal} Allow Read Topic:a")
    for _ in range(2):
        assert allowed(made, long, READ, "a") == {"a"}
        assert allowed(made, long, READ, "a", "b") == {"a"}
        assert allowed(made, long, WRITE, "a") == set()
        assert made.authorize_any(long, READ, TOPIC)
        assert not made.authorize_any(long, WRITE, TOPIC)
        assert made.operations(long, TOPIC, "a") == 1 << READ | 1 << DESCRIBE
    assert not made._clients
    assert not made._any
    everything = authorizer(super_users=[str(long.session.principal)])
    assert allowed(everything, long, WRITE, "a", "b") == {"a", "b"}
    assert not everything._clients


def test_operations_are_bits():
    made = authorizer(
        "User:alice Allow Alter Topic:t",
        "User:alice Allow Read Topic:t",
        "User:alice Deny Read Topic:t",
    )
    assert made.operations(client(), TOPIC, "t") == 1 << Operation.ALTER | 1 << DESCRIBE
    assert made.operations(client(), TOPIC, "u") == 0


@pytest.mark.parametrize("names", [(), ("a",), ("a", "b")])
def test_the_answer_is_a_part_of_the_names(names):
    made = authorizer("User:alice Allow Read Topic:*")
    assert set(made.authorize(client(), READ, TOPIC, names)) == set(names)
