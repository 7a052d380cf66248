"""The permission matrix: every API, asked by clients with different ACLs.

`run` sends the requests to a broker of any make, and returns the whole responses, but for texts of
messages, the fields of `whole_answers.MASKED`, and whether a topic is created now or later. The
responses of Apache Kafka are recorded in ``tests/golden/permission_matrix.txt``.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from aiokq import wire
from aiokq.core.acl_types import SUPPORTED_OPERATIONS, Operation, ResourceType
from aiokq.core.acls import parse_acl
from aiokq.wire.struct import Request, Response
from tests.peers.whole_answers import Parts, differences, whole
from tests.unit.broker.every_request import BUILDERS, every_request
from tests.unit.broker.harness import batch

RECORDING: Final = Path(__file__).parents[1] / "golden" / "permission_matrix.txt"

HERE: Final = "m.here"
GONE: Final = "m.gone"
GROUP: Final = "m.group"
TRANSACTIONAL_ID: Final = "t"
NODE_ID: Final = 1

CLIENT_ID: Final = "matrix"
PASSWORD: Final = "secret"

ADMIN: Final = "admin"
"""A super user, who prepares the broker."""
ANONYMOUS: Final = "ANONYMOUS"
"""The client of a listener without authentication."""

_NAMES: Final = {
    ResourceType.TOPIC: (HERE, GONE, f"{HERE}.new", f"{GONE}.new"),
    ResourceType.GROUP: (GROUP, f"{GROUP}.new"),
    ResourceType.CLUSTER: ("kafka-cluster",),
    ResourceType.TRANSACTIONAL_ID: (TRANSACTIONAL_ID,),
}
_PREFIXES: Final = {
    ResourceType.TOPIC: "m.",
    ResourceType.GROUP: "m.",
    ResourceType.CLUSTER: "kafka-cluster",  # Kafka accepts no other name
    ResourceType.TRANSACTIONAL_ID: "t",
}
_EVERY: Final = (
    "Allow All Topic:*",
    "Allow All Group:*",
    "Allow All TransactionalId:*",
    "Allow All Cluster",
)

CREATING: Final = 12
"""The version of Metadata that may create topics; versions before 4 always may."""

WITHOUT: Final = frozenset((17, 18, 36))
"""APIs without permissions, whose responses describe the broker."""

MORE_EDGES: Final[Mapping[int, tuple[int, ...]]] = {
    0: (12,),
    1: (12, 13, 15),
    3: (3, 8, 10, 11, 12),
    8: (9,),
    9: (7, 8, 9),
    10: (3, 4),
    20: (5,),
    24: (3, 4),
}
"""Versions besides the oldest and the newest with which the check or its answer changes."""


def users() -> dict[str, list[str]]:
    """Return the ACLs of each client, as lines without the principal."""
    found: dict[str, list[str]] = {
        ADMIN: [],
        "none": [],
        ANONYMOUS: [],
        "all": list(_EVERY),
        "elsewhere": [f"{line} from 192.0.2.1" for line in _EVERY],
        "transaction": ["Allow Write TransactionalId:t", f"Allow Read Group:{GROUP}"],
        "exactly-once": [
            "Allow Write TransactionalId:t",
            f"Allow Read Group:{GROUP}",
            f"Allow Read Topic:{HERE}",
        ],
        "transactional-producer": ["Allow Write TransactionalId:t", f"Allow Write Topic:{HERE}"],
        "consumer": [f"Allow Read Group:{GROUP}*", f"Allow Read Topic:{HERE}"],
        "observer": [f"Allow Describe Group:{GROUP}*", f"Allow Describe Topic:{HERE}"],
        "creator": [f"Allow Describe,Create Topic:{HERE}", "Allow Create Cluster"],
        "writer-but": ["Allow Write Topic:m.*", "Deny Write Topic:m.*"],
    }
    for kind, names in _NAMES.items():
        word = kind.name.replace("_", "")
        found[f"but-{kind.name}"] = [*_EVERY, *(f"Deny All {word}:{name}" for name in names)]
        operations = SUPPORTED_OPERATIONS[kind]
        if kind is ResourceType.CLUSTER:
            operations += (Operation.DELETE,)  # Kafka checks it, but does not list it
        for operation in operations:
            allow = f"Allow {operation.name} {word}"
            user = f"{operation.name}-{kind.name}"
            found[f"{user}-exact"] = [f"{allow}:{name}" for name in names]
            found[f"{user}-prefix"] = [f"{allow}:PREFIXED:{_PREFIXES[kind]}"]
            if kind is not ResourceType.CLUSTER:
                found[f"{user}-any"] = [f"{allow}:*"]
    return found


def creations(user: str, lines: Sequence[str]) -> list[wire.AclCreation]:
    """Return the ACLs of a user for a CreateAcls request."""
    return [
        wire.AclCreation(
            resource_type=acl.resource_type,
            resource_name=acl.resource_name,
            resource_pattern_type=acl.pattern_type,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission_type,
        )
        for line in lines
        for acl in parse_acl(f"User:{user} {line}")
    ]


def settings() -> dict[str, str]:
    """Return the settings of both brokers, but for `listeners`.

    Anonymous clients come by the listener PLAINTEXT, the others by SASL. The authorizer is Kafka's,
    and a broker's own connections are those of a super user.
    """
    clients = [user for user in users() if user != ANONYMOUS]
    return {
        "listener.security.protocol.map": (
            "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT"
        ),
        "inter.broker.listener.name": "SASL",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": _jaas(*clients),
        "listener.name.controller.plain.sasl.jaas.config": _jaas(ADMIN),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN}",
    }


def _jaas(*names: str) -> str:
    entries = " ".join(f'user_{name}="{PASSWORD}"' for name in names)
    return (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="{ADMIN}" password="{PASSWORD}" {entries};'
    )


class Peer(Protocol):
    """A broker that can be asked by each of the clients.

    Attributes:
        texts: what stands for texts that describe the run, such as paths.
    """

    texts: Mapping[str, str]

    async def ask(self, user: str, request: Request[Response], version: int) -> Response | None:
        """Return the response; None if the broker has closed the connection."""
        ...

    async def settled(self) -> None:
        """Return when the last change of the metadata is in effect."""
        ...


async def prepare(peer: Peer) -> None:
    """Create the ACLs, the topic, the group with offsets, and the transactional id."""
    every = [each for user, lines in users().items() for each in creations(user, lines)]
    response: Any = await peer.ask(ADMIN, wire.CreateAclsRequest(creations=every), 3)
    assert {each.error_code for each in response.results} == {0}
    await _create(peer)
    for kind, key in ((0, GROUP), (0, f"{GROUP}.new"), (1, TRANSACTIONAL_ID)):
        request = wire.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        await _until(peer, request, 4, lambda found: not found.coordinators[0].error_code)
    commit = every_request(8, 8, [HERE], {}, GROUP)[0]
    await _until(peer, commit, 8, lambda found: not found.topics[0].partitions[0].error_code)
    initialize = wire.InitProducerIdRequest(
        transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=60_000
    )
    await _until(peer, initialize, 4, lambda found: not found.error_code)
    await peer.settled()


async def _until(peer: Peer, request: Any, version: int, done: Any) -> Any:
    for _ in range(400):
        response = await peer.ask(ADMIN, request, version)
        if response is not None and done(response):
            return response
        await peer.settled()
    raise AssertionError(f"no success: {response}")


async def _create(peer: Peer) -> uuid.UUID:
    """Create the topic with three records; return its id."""
    create = wire.CreateTopicsRequest(
        topics=[wire.CreatableTopic(name=HERE, num_partitions=1, replication_factor=1)],
        timeout_ms=10_000,
    )
    response = await _until(peer, create, 7, lambda found: found.topics[0].error_code in (0, 36))
    asked = wire.MetadataRequest(
        topics=[wire.MetadataRequestTopic(name=HERE)], allow_auto_topic_creation=False
    )

    def is_led(found: Any) -> bool:
        [topic] = found.topics
        return not topic.error_code and not topic.partitions[0].error_code

    response = await _until(peer, asked, 12, is_led)
    produce = wire.ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[
            wire.TopicProduceData(
                name=HERE,
                partition_data=[wire.PartitionProduceData(index=0, records=batch(3))],
            )
        ],
    )
    await _until(
        peer, produce, 9, lambda found: not found.responses[0].partition_responses[0].error_code
    )
    topic_id: uuid.UUID = response.topics[0].topic_id
    return topic_id


def edges(served: Mapping[int, tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield each API and version of the matrix that a broker serves."""
    for key in sorted(BUILDERS):
        if key in WITHOUT or key not in served:
            continue
        low, high = served[key]
        for version in sorted({low, high, *MORE_EDGES.get(key, ())}):
            if low <= version <= high:
                yield key, version


def _requests(key: int, version: int, ids: Mapping[str, uuid.UUID]) -> list[Any]:
    """Return requests that change as little as possible, for node `NODE_ID`."""
    requests: list[Any] = every_request(key, version, [HERE, GONE], ids, GROUP)
    for request in requests:
        if any(
            field.name == "validate_only" and field.since <= version
            for field in type(request).__fields__
        ):
            request.validate_only = True
        if key == 3 and version >= 4:
            request.allow_auto_topic_creation = version == CREATING
        if key == 11:
            request.session_timeout_ms = 1  # refused after the authorization
        if key == 57:
            request.feature_updates[0].feature = "no.such.feature"
        if key in (32, 33, 44):
            for resource in request.resources:
                if resource.resource_name == "0":
                    resource.resource_name = str(NODE_ID)
        if key == 45:
            for topic in request.topics:
                topic.partitions[0].replicas = [NODE_ID]
    if key == 50:
        # Apache Kafka 4.2.0 never answers a denied request about all users.
        return [request for request in requests if request.users is not None]
    return requests[:1] if key == 19 else requests


async def run(peer: Peer, served: Mapping[int, tuple[int, int]]) -> dict[str, dict[str, list[str]]]:
    """Return for each API, version and request the responses, each with the users who got it."""
    topic_id = await _create(peer)
    found: dict[str, dict[str, list[str]]] = {}
    for key, version in edges(served):
        for number in range(len(_requests(key, version, {}))):
            cell = found.setdefault(f"{wire.api(key).NAME}/{version}/{number}", {})
            for user in users():
                if key == 3 or user == ADMIN:
                    await _ensure_absent(peer, GONE, seconds=0)
                request = _requests(key, version, {HERE: topic_id})[number]
                response = await peer.ask(user, request, version)
                if response is None:
                    answer: Any = "closed"
                else:
                    answer = whole(response, version, ids={topic_id: HERE}, texts=peer.texts)
                    if key == 3:
                        _hide_creation(answer)
                cell.setdefault(json.dumps(answer, sort_keys=True), []).append(user)
                if key == 20 and 0 in _codes(response):
                    await peer.settled()
                    topic_id = await _create(peer)
                if key == 3 and (version < 4 or version == CREATING):
                    await _ensure_absent(peer, GONE, seconds=_may_have_created(response) * 3)
                if key in (42, 47) and 0 in _codes(response):
                    await _recommit(peer)
    return found


def _hide_creation(answer: Any) -> None:
    """Make a topic that the request created look like one that it will create.

    Apache Kafka creates it later, and a later request of the same cell may find it. So the error
    code (0 or 3), the partitions and the id of this topic are not compared.
    """
    topics = answer.get("topics", [])
    for topic in topics:
        if topic.get("name") == GONE and topic["error_code"] in (0, 3):
            topic["error_code"] = "permitted"
            topic.pop("partitions", None)
            topic.pop("topic_id", None)
    topics.sort(key=lambda each: json.dumps(each, sort_keys=True))


def _may_have_created(response: Any) -> bool:
    """Whether a Metadata request was allowed to create the missing topic."""
    return any(topic.name == GONE and topic.error_code != 29 for topic in response.topics)


async def _ensure_absent(peer: Peer, name: str, *, seconds: float) -> None:
    """Delete a topic that exists, or that exists within some seconds.

    Apache Kafka creates a topic after it has answered the Metadata request.
    """
    deadline = time.monotonic() + seconds
    asked = wire.MetadataRequest(
        topics=[wire.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
    )
    delete = wire.DeleteTopicsRequest(topics=[wire.DeleteTopicState(name=name)], timeout_ms=10_000)
    while True:
        response: Any = await peer.ask(ADMIN, asked, 12)
        if response.topics[0].error_code == 3:
            if time.monotonic() >= deadline:
                return
        else:
            await peer.ask(ADMIN, delete, 6)
            deadline = 0.0
        await peer.settled()


def _codes(response: Any) -> set[int]:
    """Return the error codes of the items of a DeleteTopics, DeleteGroups or OffsetDelete."""
    if hasattr(response, "responses"):
        return {each.error_code for each in response.responses}
    if hasattr(response, "results"):
        return {each.error_code for each in response.results}
    return {part.error_code for each in response.topics for part in each.partitions}


async def _recommit(peer: Peer) -> None:
    commit = every_request(8, 8, [HERE], {}, GROUP)[0]
    await _until(peer, commit, 8, lambda found: not found.topics[0].partitions[0].error_code)


def recording() -> dict[str, dict[str, list[str]]]:
    """Return the recorded responses of Apache Kafka, as `run` returns them."""
    parts = Parts()
    found: dict[str, dict[str, list[str]]] = {}
    for line in RECORDING.read_text().splitlines():
        first, second, *names = line.split("\t")
        if not names:
            parts.texts[first] = second
        else:
            answer = json.dumps(parts.unpacked(json.loads(second)), sort_keys=True)
            found.setdefault(first, {})[answer] = names[0].split(" ")
    return found


def write_recording(found: Mapping[str, Mapping[str, list[str]]]) -> None:
    """Write the responses of Apache Kafka: a line has a cell, a response and the users.

    Long parts of responses come first, each under a name.
    """
    parts = Parts()
    lines = [
        f"{cell}\t{json.dumps(parts.packed(json.loads(answer)), sort_keys=True)}\t{' '.join(names)}"
        for cell, answers in sorted(found.items())
        for answer, names in sorted(answers.items())
    ]
    named = [f"{name}\t{text}" for name, text in sorted(parts.texts.items())]
    RECORDING.write_text("".join(f"{line}\n" for line in (*named, *lines)))


class Difference(NamedTuple):
    """A field in which the answers to a user differ; the values are JSON, "..." or "-"."""

    cell: str
    path: str
    theirs: str
    ours: str
    user: str

    @property
    def text(self) -> str:
        """The field and the values, as they stand in the list of differences."""
        return f"{self.path}: {self.theirs} | {self.ours}"


def all_differences(
    recorded: Mapping[str, Mapping[str, list[str]]], found: Mapping[str, Mapping[str, list[str]]]
) -> Iterator[Difference]:
    """Yield the fields in which the responses in a cell differ, for each user."""
    compared: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
    for cell in sorted(recorded.keys() & found.keys()):
        theirs = {user: answer for answer, names in recorded[cell].items() for user in names}
        ours = {user: answer for answer, names in found[cell].items() for user in names}
        for user in theirs.keys() & ours.keys():
            pair = theirs[user], ours[user]
            if pair[0] == pair[1]:
                continue
            if pair not in compared:
                compared[pair] = list(differences(*map(json.loads, pair)))
            for path, left, right in compared[pair]:
                yield Difference(cell, path, left, right, user)
