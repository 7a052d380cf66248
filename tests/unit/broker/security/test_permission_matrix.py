"""The permission matrix: this broker answers as Apache Kafka 4.2 has answered.

`tests/golden/permission_matrix.txt` has the responses of Apache Kafka, which `make interop` checks
again. The differences that remain stand in `permission_differences.txt`, each under its reason. A
difference that is not listed fails the test, and so does a listed one that no longer exists.
"""

from __future__ import annotations

from pathlib import Path

from aiokq import wire
from aiokq.broker.handlers import APIS
from aiokq.broker.permissions import PERMISSIONS
from aiokq.connection.principal import ANONYMOUS, Principal
from aiokq.connection.request_context import CloseConnection, RequestContext
from tests.peers.permission_matrix import (
    ADMIN,
    GROUP,
    NODE_ID,
    WITHOUT,
    differences,
    edges,
    prepare,
    recording,
    run,
    users,
)
from tests.unit.broker.handlers.test_acls import ADMIN as AUTHORIZER
from tests.unit.broker.harness import Broker

LIST = Path(__file__).with_name("permission_differences.txt")


class Here:
    """This broker, asked in its process."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._clients: dict[str, RequestContext] = {}

    async def ask(self, user, request, version):
        client = self._clients.get(user)
        if client is None:
            client = self._clients[user] = RequestContext(
                7, "127.0.0.1:1", "127.0.0.1", "PLAINTEXT"
            )
            client.session.principal = ANONYMOUS if user == ANONYMOUS.name else Principal.user(user)
        try:
            return await self._broker.ask(request, version, client=client)
        except CloseConnection:
            return None

    async def settled(self):
        pass


async def recorded_here():
    broker = Broker(
        offsets_topic_num_partitions=4,
        transaction_state_log_num_partitions=4,
        group_initial_rebalance_delay_ms=0,
        **AUTHORIZER,
    )
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
    found = differences(recording(), await recorded_here())
    lines = {
        f"{cell} {user}": (theirs, ours)
        for cell, differing in found.items()
        for user, theirs, ours in differing
    }
    known = set()
    for entry in listed():
        cell, _, names = entry.partition(" ")
        matching = {
            line
            for line in lines
            if line.split(" ")[0] == cell
            and (names == "*" or line.split(" ")[1] in names.split(","))
        }
        assert matching, f"no longer so: {entry}"
        if names != "*":
            named = {f"{cell} {name}" for name in names.split(",")}
            assert matching == named, f"no longer so: {named - matching}"
        known |= matching
    new = {line: lines[line] for line in sorted(lines.keys() - known)}
    assert not new, "\n".join(
        f"{line}\n  kafka {theirs}\n  aiokq {ours}" for line, (theirs, ours) in new.items()
    )


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
