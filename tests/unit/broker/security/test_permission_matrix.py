"""The permission matrix: this broker answers as Apache Kafka 4.2 has answered.

`tests/golden/permission_matrix.txt` has the responses of Apache Kafka, which `make interop` checks
again. The differences that remain stand in `permission_differences.txt`, each under its reason. A
difference that is not listed fails the test, and so does a listed one that no longer exists.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from aiokq import wire
from aiokq.broker.handlers import APIS
from aiokq.broker.permissions import PERMISSIONS
from aiokq.connection.principal import ANONYMOUS, Principal
from aiokq.connection.request_context import CloseConnection, RequestContext
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


def listed() -> list[str]:
    return [line for line in LIST.read_text().splitlines() if line and not line.startswith("#")]


async def test_every_client_is_answered_as_by_apache_kafka():
    """A line of the list is a pattern of cells, then a field and its values in all of them."""
    recorded = recording()
    found: dict[tuple[str, str], list[str]] = {}
    for one in all_differences(recorded, await recorded_here()):
        found.setdefault((one.cell, one.text), []).append(one.user)
    known = set()
    for entry in listed():
        pattern, _, text = entry.partition(" ")
        cells = [cell for cell in recorded if fnmatchcase(cell, pattern)]
        gone = [cell for cell in cells if (cell, text) not in found]
        assert cells, f"no such cell: {entry}"
        assert not gone, f"no longer so in {gone}: {entry}"
        known |= {(cell, text) for cell in cells}
    new = [
        f"{cell} {text}  ({len(users)} users, {users[0]} is one)"
        for (cell, text), users in found.items()
        if (cell, text) not in known
    ]
    assert not new, "not in the list:\n" + "\n".join(new)


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


def test_each_difference_has_a_reason():
    reason = None
    for line in LIST.read_text().splitlines():
        if line.startswith("# "):
            reason = line
        elif not line:
            reason = None
        else:
            assert reason is not None, line


def test_the_matrix_has_every_permission_alone():
    """Each row of the table is a client that has this permission and no other."""
    for rows in PERMISSIONS.values():
        for row in rows:
            assert f"{row.operation.name}-{row.resource_type.name}-exact" in users()
    assert {ADMIN, "none", "all", "elsewhere", ANONYMOUS.name} <= set(users())
    assert GROUP.startswith("m.")
