"""The permission matrix: this broker answers as Apache Kafka 4.2 has answered.

`tests/golden/permission_matrix.txt` has the responses of Apache Kafka, which `make interop` checks
again. The differences that remain stand in `permission_differences.txt`, each under its reason and
the clients whose answers differ. A difference that is not listed fails the test, and so does a
listed one that no longer exists, for any client.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import pytest

from aiokq import wire
from aiokq.broker.handlers import APIS
from aiokq.broker.permissions import PERMISSIONS
from aiokq.broker.security.authorization.standard_authorizer import StandardAuthorizer
from aiokq.connection.principal import ANONYMOUS, Principal
from aiokq.connection.request_context import CloseConnection, RequestContext
from aiokq.core.acls import parse_acl
from tests.peers.permission_matrix import (
    ADMIN,
    CLIENT_ID,
    GROUP,
    NODE_ID,
    WITHOUT,
    all_differences,
    edges,
    prepare,
    recording,
    run,
    settings,
    users,
)
from tests.peers.whole_answers import MASK, MASKED
from tests.unit.broker.harness import Broker
from tests.unit.broker.security.test_acl_index import record

DIRECTORY = "/data/node-1"
LISTENERS = {"PLAINTEXT": 9001, "SASL": 9002, "CONTROLLER": 9003}
SETTINGS = {
    "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in LISTENERS.items()),
    "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{LISTENERS['CONTROLLER']}",
    "controller.listener.names": "CONTROLLER",
    "broker.rack": "rack-1",
    "log.dirs": DIRECTORY,
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}
"""The settings that `ApacheKafka` has of itself, as far as this broker has them."""

LIST = Path(__file__).with_name("permission_differences.txt")


class Here:
    """This broker, asked in its process."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._clients: dict[str, RequestContext] = {}

    texts: Mapping[str, str] = {
        "/data": "DIRECTORY",
        **{f":{port}": ":PORT" for port in LISTENERS.values()},
    }

    async def ask(self, user, request, version):
        client = self._clients.get(user)
        if client is None:
            is_anonymous = user == ANONYMOUS.name
            listener = "PLAINTEXT" if is_anonymous else "SASL"
            client = RequestContext(7, "127.0.0.1:1", "127.0.0.1", listener)
            client.session.principal = ANONYMOUS if is_anonymous else Principal.user(user)
            self._clients[user] = client
        try:
            return await self._broker.ask(request, version, client_id=CLIENT_ID, client=client)
        except CloseConnection:
            return None

    async def settled(self):
        pass


async def recorded_here():
    broker = Broker(directories=DIRECTORY, **SETTINGS, **settings())
    broker.node._given_node_id = NODE_ID
    async with broker:
        peer = Here(broker)
        await prepare(peer)
        return await run(peer, served())


def served() -> dict[int, tuple[int, int]]:
    """Return the versions that both brokers serve; Apache Kafka closes the connection for more."""
    versions = {api.key: (api.min_version, api.max_version) for api in APIS.values()}
    return {**versions, 0: (3, versions[0][1])}


class Listed(NamedTuple):
    """A line of the list of differences.

    Attributes:
        reason: the comment above the line.
        clients: the line "for" above it, which `named` reads.
        cells: pattern of the cells.
        text: the field and its two values, as in `Difference.text`.
    """

    reason: str
    clients: str
    cells: str
    text: str


def listed() -> list[Listed]:
    found = []
    reason = clients = ""
    for line in LIST.read_text().splitlines():
        if not line:
            reason = clients = ""
        elif line.startswith("# "):
            reason += line[2:]
        elif line.startswith("for "):
            clients = line[4:]
        else:
            cells, _, text = line.partition(" ")
            found.append(Listed(reason, clients, cells, text))
    return found


def named(clients: str) -> set[str]:
    """Return the clients that a line "for" names.

    Such a line is "everyone"; "those with PERMISSION"; or "those who lack PERMISSION". A permission
    is written as in an ACL. Several of them have "and" or "or" between them.
    """
    authorizer = StandardAuthorizer([f"User:{ADMIN}"])
    acls = [
        str(acl)
        for user, lines in users().items()
        for line in lines
        for acl in parse_acl(f"User:{user} {line}")
    ]
    authorizer.load(record(line, number) for number, line in enumerate(acls))

    def may(user: str, permission: str) -> bool:
        client = RequestContext(7, "127.0.0.1:1", "127.0.0.1", "SASL")
        client.session.principal = Principal.user(user)
        (acl,) = parse_acl(f"User:{user} Allow {permission}")
        return bool(
            authorizer.authorize(client, acl.operation, acl.resource_type, [acl.resource_name])
        )

    if clients == "everyone":
        return set(users())
    with_, _, of_with = clients.partition("those with ")
    lack, _, of_lack = clients.partition("those who lack ")
    assert "" in (with_, lack), clients
    permissions = of_with or of_lack
    word, combined = (" or ", any) if " or " in permissions else (" and ", all)
    return {
        user
        for user in users()
        if combined(may(user, one) is bool(of_with) for one in permissions.split(word))
    }


async def test_every_client_is_answered_as_by_apache_kafka():
    """But for the differences in the list."""
    recorded = recording()
    found: dict[tuple[str, str], set[str]] = {}
    for one in all_differences(recorded, await recorded_here()):
        found.setdefault((one.cell, one.text), set()).add(one.user)
    wrong = []
    for _, line, pattern, text in listed():
        cells = [cell for cell in recorded if fnmatchcase(cell, pattern)]
        assert cells, f"no such cell: {pattern}"
        clients = named(line)
        assert clients, f"nobody: {line}"
        for cell in cells:
            differ = found.pop((cell, text), set())
            wrong += [f"no longer for {user}: {cell} {text}" for user in clients - differ]
            wrong += [f"not listed for {user}: {cell} {text}" for user in differ - clients]
    wrong += [
        f"not listed, for {len(differ)} clients, {min(differ)} is one: {cell} {text}"
        for (cell, text), differ in found.items()
    ]
    assert not wrong, "\n".join(sorted(wrong))


@pytest.mark.parametrize(
    ("line", "some", "others"),
    [
        ("everyone", {"none", "elsewhere", ADMIN, ANONYMOUS.name}, set()),
        (
            "those with Create Topic:m.gone or Create Cluster",
            {"creator", "CREATE-TOPIC-any", "but-TOPIC", "but-CLUSTER", ADMIN},
            {"none", "elsewhere", "WRITE-TOPIC-any"},
        ),
        (
            "those with Read Group:m.group and Read Topic:m.here",
            {"consumer", "exactly-once", "but-CLUSTER"},
            {"READ-GROUP-any", "READ-TOPIC-any", "but-GROUP", "observer"},
        ),
        (
            "those who lack Write Topic:m.here",
            {"none", "writer-but", "elsewhere", ANONYMOUS.name},
            {"WRITE-TOPIC-prefix", "transactional-producer", ADMIN},
        ),
        (
            "those who lack Read Group:m.group or Read Topic:m.here",
            {"READ-GROUP-any", "READ-TOPIC-any", "none"},
            {"consumer", "exactly-once", ADMIN},
        ),
    ],
)
def test_the_list_names_clients_by_what_they_may_do(
    line: str, some: set[str], others: set[str]
) -> None:
    assert named(line) >= some
    assert not named(line) & others


def test_each_masked_field_has_a_reason_and_is_in_a_response():
    """A field is masked only while a response has it."""

    def masked(value: object) -> Iterator[str]:
        if isinstance(value, dict):
            for name, member in value.items():
                if member == MASK:
                    yield name
                yield from masked(member)
        elif isinstance(value, list):
            for member in value:
                yield from masked(member)

    found = {
        name
        for answers in recording().values()
        for answer in answers
        for name in masked(json.loads(answer))
    }
    assert found == {name.rpartition(".")[2] for name in MASKED}
    assert all(MASKED.values())


def test_the_recording_has_every_api_and_client():
    """A new API or permission needs a new recording: see `make interop`."""
    recorded = recording()
    apis = {cell.split("/")[0] for cell in recorded}
    assert apis == {wire.api(key).NAME for key in PERMISSIONS if key not in WITHOUT}
    cells = {f"{wire.api(key).NAME}/{version}" for key, version in edges(served())}
    assert {cell.rpartition("/")[0] for cell in recorded} == cells
    for cell, answers in recorded.items():
        assert {user for names in answers.values() for user in names} == set(users()), cell


def test_each_difference_has_a_reason_and_clients():
    for line in listed():
        assert line.reason, line
        assert line.clients, line


def test_the_matrix_has_every_permission_alone():
    """Each row of the table is a client that has this permission and no other."""
    for rows in PERMISSIONS.values():
        for row in rows:
            assert f"{row.operation.name}-{row.resource_type.name}-exact" in users()
    assert {ADMIN, "none", "all", "elsewhere", ANONYMOUS.name} <= set(users())
    assert GROUP.startswith("m.")
