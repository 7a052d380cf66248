"""Random messages of the wire protocol, drawn from the schema of a class.

Half of the values are such as a handler accepts: names of topics and groups that exist, small
numbers, batches of records. The others are at the edges: empty, as long as fits, negative.
"""

from __future__ import annotations

import uuid
from random import Random

from aiokq import wire
from aiokq.wire.fields import Field
from aiokq.wire.struct import NO_TAGS, Message, Struct
from tests.fault.fuzz.batches import any_records
from tests.property.wire.messages import in_version

SHARED = "shared"
"""The topic that fuzzers may read and write."""
SECRET = "secret"
"""The topic, group and transactional id that fuzzers know by name and may not use."""

SECRET_ID = uuid.UUID(int=0x5EC7E75EC7E75EC7E75EC7E75EC7E75E)
SHARED_ID = uuid.UUID(int=0x5A7ED05A7ED05A7ED05A7ED05A7ED05A)
"""Placeholders for ids that the broker gives; they are replaced when a plan is carried out."""

TOPICS = [SHARED, SHARED, SHARED, SECRET, "mine-1", "mine-2", "nothing", "__consumer_offsets"]
FORGED = "fuzz-\n2026-01-01 00:00:00,000 ERROR aiokq: forged\r\x1b[2J\u2028"
"""A name with which a line of the log could be forged."""
GROUPS = ["fuzz-1", "fuzz-2", "fuzz-3", SECRET, "nothing", FORGED]
TRANSACTIONAL_IDS = ["fuzz-1", "fuzz-2", SECRET, FORGED]
MEMBERS = ["", "", "member-1", "member-2", FORGED]
PRINCIPALS = ["User:fuzz-1", "User:fuzz-2", "User:", "nobody", "Group:fuzz-1"]
USERS = ["fuzz-1", "fuzz-2", "nobody"]
CONFIGS = [
    *("cleanup.policy", "retention.ms", "max.message.bytes", "compression.type", "segment.bytes"),
    *("min.insync.replicas", "message.timestamp.type", "consumer.session.timeout.ms", "unknown"),
]
CONFIG_VALUES = ["compact", "delete", "1", "-1", "gzip", "1048576", "LogAppendTime", "45000", "x"]

NAMES: dict[str, list[str]] = {
    "topic": TOPICS,
    "topic_name": TOPICS,
    "topics": TOPICS,
    "topic_names": TOPICS,
    "subscribed_topic_names": TOPICS,
    "subscribed_topic_regex": ["shared.*", "(a|aa)+$", "[", ".*" * 50, "(?i)S.{1,1000}"],
    "group": GROUPS,
    "group_id": GROUPS,
    "group_ids": GROUPS,
    "groups": GROUPS,
    "groups_names": GROUPS,
    "coordinator_keys": [*GROUPS, *TRANSACTIONAL_IDS],
    "key": [*GROUPS, *TRANSACTIONAL_IDS, "producer_byte_rate", "request_percentage"],
    "transactional_id": TRANSACTIONAL_IDS,
    "transactional_ids": TRANSACTIONAL_IDS,
    "transactional_id_filters": TRANSACTIONAL_IDS,
    "member_id": MEMBERS,
    "group_instance_id": ["static-1", "static-2"],
    "instance_id": ["static-1"],
    "protocol_type": ["consumer", "connect", ""],
    "protocol_name": ["range", "uniform"],
    "server_assignor": ["uniform", "range", "nothing"],
    "principal": PRINCIPALS,
    "principal_filter": PRINCIPALS,
    "host": ["*", "127.0.0.1", "192.0.2.1", "not a host"],
    "user": USERS,
    "entity_type": ["user", "client-id", "ip", "nothing"],
    "entity_name": USERS,
    "match": USERS,
    "feature": ["metadata.version", "group.version", "transaction.version", "nothing"],
    "mechanism": ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "plain"],
    "client_software_name": ["aiokq", "apache-kafka-java", "-", "a b"],
    "client_software_version": ["1.0", "", "x" * 1000],
    "states_filter": ["Stable", "Empty", "Dead", "nothing"],
    "state_filters": ["Ongoing", "Empty", "nothing"],
    "types_filter": ["classic", "consumer", "nothing"],
}
"""Plausible values of strings, by the name of the field."""

NAME_FIELDS = {"name": TOPICS, "resource_name": [*TOPICS, "0", "kafka-cluster", "fuzz-1"]}
SMALL = {"partition", "partition_index", "partition_indexes", "index", "partitions"}
TIMES = {"timeout_ms", "max_wait_ms", "session_timeout_ms", "rebalance_timeout_ms", "min_bytes"}

ODD_TEXTS = [
    "",
    "a" * 249,
    "a" * 250,
    "ä" * 40,
    "\0",
    "..",
    "/../x",
    "x" * 30_000,
    "\u202e",
    "%s{}",
]
BITS = {"i8": 7, "i16": 15, "i32": 31, "i64": 63}


class Values:
    """Draws values from one source of chance."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def request(self, key: int, version: int) -> Message:
        """Return a request of an API that can be encoded in a version."""
        cls = wire.api(key)
        message = in_version(self.struct(cls), version, flexible=cls.is_flexible(version))
        assert isinstance(message, Message)
        return message

    def response(self, key: int, version: int) -> Message:
        cls = wire.api(key).RESPONSE
        message = in_version(self.struct(cls), version, flexible=cls.is_flexible(version))
        assert isinstance(message, Message)
        return message

    def struct(self, cls: type[Struct], depth: int = 0) -> Struct:
        values = {field.name: self._field(cls, field, depth) for field in cls.__fields__}
        tags = NO_TAGS
        if self.random.random() < 0.03:
            count = self.random.randint(1, 3)
            tags = {
                self.random.randint(100, 2**31): self.random.randbytes(self.random.randrange(40))
                for _ in range(count)
            }
        return cls(unknown_tags=tags, **values)

    def _field(self, cls: type[Struct], field: Field, depth: int) -> object:
        random = self.random
        if random.random() < 0.25:
            return field.make_default()
        if field.nullable_since is not None and random.random() < 0.15:
            return None
        of = field.of
        if field.kind == "array":
            return [self._item(cls, field, depth) for _ in range(self._length(depth))]
        if field.kind == "struct":
            assert isinstance(of, type)
            return self.struct(of, depth + 1)
        return self._value(cls, field.kind, field.name)

    def _item(self, cls: type[Struct], field: Field, depth: int) -> object:
        if isinstance(field.of, type):
            return self.struct(field.of, depth + 1)
        return self._value(cls, str(field.of), field.name)

    def _length(self, depth: int) -> int:
        random = self.random
        if random.random() < 0.01 and depth < 2:
            return random.choice([50, 300, 2000 >> 3 * depth])
        return random.choice([0, 1, 1, 1, 2, 2, 3])

    def _value(self, cls: type[Struct], kind: str, name: str) -> object:
        random = self.random
        match kind:
            case "string":
                return self._text(cls, name)
            case "bytes":
                return random.randbytes(random.choice([0, 1, 4, 20, 20, 200, 3000]))
            case "records":
                return any_records(random)
            case "uuid":
                return random.choice(
                    [SHARED_ID, SHARED_ID, SECRET_ID, wire.ZERO_UUID, uuid.UUID(int=7)]
                )
            case "boolean":
                return random.random() < 0.5
            case "f64":
                return random.choice([0.0, 1.0, -1.0, 1e308, 5e-324, float("inf"), 0.01])
        return self._number(kind, name)

    def _text(self, cls: type[Struct], name: str) -> str:
        random = self.random
        if random.random() < 0.06:
            return random.choice(ODD_TEXTS)
        known = NAMES.get(name) or NAME_FIELDS.get(name)
        if name == "name":
            # Names of topics, settings, features and users share the name of their field.
            if "Config" in cls.__name__:
                known = CONFIGS
            elif "Scram" in cls.__name__:
                known = USERS
            elif "Protocol" in cls.__name__:
                known = ["range", "uniform", "cooperative-sticky"]
        elif name == "value" or name == "configuration_keys":
            known = CONFIG_VALUES if name == "value" else CONFIGS
        if known:
            return random.choice(known)
        return random.choice(["x", "fuzz", "0", SHARED])

    def _number(self, kind: str, name: str) -> int:
        random = self.random
        if kind in ("u16", "u32"):
            return random.choice([0, 1, 9092, 2 ** int(kind[1:]) - 1])
        limit = 2 ** BITS[kind]
        if name in SMALL and random.random() < 0.8:
            return random.choice([0, 0, 1, 2])
        if name in TIMES:
            return random.choice([0, 1, 50, 200, 6000 % limit, -1, limit - 1])
        if random.random() < 0.6:
            return random.choice([0, 1, 1, 2, 3, -1])
        return random.choice(
            [0, -2, 5, 10, 100, limit - 1, -limit, limit // 2, random.randrange(-limit, limit)]
        )
