"""Conversations that depend on the broker's answers: of members of groups, and of transactions.

The requests are drawn as all others. Then the ids, generations and epochs that the broker has given
are put in, so that a conversation comes as far as that of a client that behaves.
"""

from __future__ import annotations

from random import Random

from aiokq import wire
from aiokq.fastpath import crc32c
from aiokq.records.record import RawRecord, encode_batch
from aiokq.wire.struct import Struct
from tests.fault.fuzz.values import GROUPS, SECRET, SHARED, SHARED_ID, Values

KEYS = {
    "group": (8, 8, 9, 11, 11, 11, 12, 13, 14, 14, 14, 15, 47, 68, 68, 68, 69, 28),
    "transaction": (0, 0, 0, 22, 22, 24, 24, 25, 26, 26, 28, 65, 61, 27, 66),
}
"""The APIs of each kind of conversation."""

IS_TRANSACTIONAL = 0x10
SUBSCRIPTION = b"\0\0\0\0\0\1\0\6shared\xff\xff\xff\xff"
"""What a consumer sends as metadata: the topic `shared`."""


class Talk:
    """One conversation of a client; `next` gives its requests, and `learn` takes the answers."""

    def __init__(self, kind: str, seed: int, *, is_super: bool) -> None:
        self.random = Random(seed)
        self._values = Values(self.random)
        self._keys = KEYS[kind]
        self._is_super = is_super
        self._known: dict[str, object] = {
            "group_id": self.random.choice([one for one in GROUPS if one != SECRET]),
            "transactional_id": self.random.choice(("fuzz-1", "fuzz-2")),
            "member_id": "",
            "generation_id": -1,
            "generation_id_or_member_epoch": -1,
            "member_epoch": 0,
            "producer_id": -1,
            "producer_epoch": -1,
            "protocol_type": "consumer",
            "group_instance_id": None,
        }

    def next(self) -> tuple[wire.Request[wire.Response], int]:
        """Return a request and its version."""
        random = self.random
        while True:
            key = random.choice(self._keys)
            cls = wire.api(key)
            version = random.randint(cls.MIN_VERSION, cls.MAX_VERSION)
            message = self._values.request(key, version)
            assert isinstance(message, wire.Request)
            self._fill(message, version)
            if isinstance(message, wire.ProduceRequest):
                self._produce(message, version)
            if isinstance(message, wire.ConsumerGroupHeartbeatRequest) and random.random() < 0.7:
                self._heartbeat(message)
            if isinstance(message, wire.ConsumerGroupHeartbeatRequest) and self._is_super:
                message.group_id = f"root-{message.group_id}"  # see `is_forbidden`
            if not (self._is_super and SECRET in repr(message)):
                return message, version

    def _fill(self, message: Struct, version: int) -> None:
        """Put what the broker has told into the fields of these names, mostly."""
        random = self.random
        for field in message.__fields__:
            name = field.name.removeprefix("v3_and_below_")
            value = getattr(message, field.name)
            if isinstance(value, list):
                for one in value:
                    if isinstance(one, Struct):
                        self._fill(one, version)
            if not field.in_version(version) or random.random() < 0.06:
                continue
            if name in self._known:
                known = self._known[name]
                if known is not None or field.nullable_in(version):
                    setattr(message, field.name, known)
            elif name in ("session_timeout_ms", "transaction_timeout_ms"):
                setattr(message, field.name, random.choice([200, 1000, 3000]))
            elif name == "rebalance_timeout_ms":
                setattr(message, field.name, random.choice([-1, 0, 200, 1000]))
            elif name == "metadata" and field.kind == "bytes" and random.random() < 0.7:
                setattr(message, field.name, SUBSCRIPTION)

    def _heartbeat(self, message: wire.ConsumerGroupHeartbeatRequest) -> None:
        """Make a heartbeat as clients send it: to join, or to stay."""
        message.member_id = message.member_id or f"member-{self.random.randrange(3)}"
        message.rack_id = message.server_assignor = None
        if message.member_epoch == 0:
            message.rebalance_timeout_ms = self.random.choice([100, 1000])
            message.subscribed_topic_names = [SHARED]
            message.topic_partitions = []
            message.instance_id = self.random.choice([None, "static-1"])

    def _produce(self, message: wire.ProduceRequest, version: int) -> None:
        random = self.random
        batch = encode_batch(
            [RawRecord(n, 1, None, b"v") for n in range(random.choice([1, 3]))],
            crc32c=crc32c,
            producer_id=int(str(self._known["producer_id"])),
            producer_epoch=int(str(self._known["producer_epoch"])),
            base_sequence=random.choice([0, 0, 1, 3]),
            attributes=random.choice([IS_TRANSACTIONAL, IS_TRANSACTIONAL, 0]),
        )
        index = random.randrange(3)
        data = [wire.PartitionProduceData(index=index, records=batch)]
        message.acks = random.choice([1, -1])
        message.timeout_ms = 500
        topic = wire.TopicProduceData(name=SHARED, partition_data=data)
        if version >= 13:
            topic = wire.TopicProduceData(topic_id=SHARED_ID, partition_data=data)
        message.topic_data = [topic]

    def learn(self, response: wire.Response) -> None:
        """Keep the ids and epochs of an answer."""
        for name in ("member_id", "generation_id", "member_epoch", "producer_id", "producer_epoch"):
            value = getattr(response, name, None)
            if value in (None, "") or (isinstance(value, int) and value < 0):
                continue
            self._known[name] = value
            if name in ("generation_id", "member_epoch"):
                self._known["generation_id_or_member_epoch"] = value
