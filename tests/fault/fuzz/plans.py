"""What one connection of a fuzzer does: a list of steps, the same for the same seed.

The bytes of a plan do not depend on the broker, except for what is put in when the plan is carried
out: ids of topics for their placeholders, the proof of a SCRAM login, what the broker has told in a
conversation (`talks`), and TLS.
"""

from __future__ import annotations

import base64
import json
import struct
from random import Random
from typing import NamedTuple

from aiokq import wire
from aiokq.core.errors import ProtocolError
from tests.fault.fuzz.forbidden import is_forbidden
from tests.fault.fuzz.mutations import damaged, framed, lying, pieces
from tests.fault.fuzz.values import Values

KINDS = ("plain", "tls", "mutual", "sasl", "secure", "reauth")
"""The kinds of listeners: their names in lower case."""

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

PASSWORDS = {"mallory": "mallory-pw-84c1", "root": "root-pw-19ef"}

IDENTITIES = ("mallory", "root", "stranger", "expired", "odd", "large", "")
"""The client certificates of the fuzzers; "" for none."""

API_KEYS = tuple(wire.catalog.APIS)


class Step(NamedTuple):
    """One thing that a connection does.

    `do` is "send" (through TLS, if there is TLS), "raw" (past TLS), "slow" (byte by byte), "tls"
    (a handshake, with the certificate named by `text`, given up after `number` bytes if it is not
    0), "scram" (a login with the mechanism and the user in `text`, whose last message is damaged if
    `number` is not 0), "talk" (a conversation of the kind `text` and the seed `number`), "read"
    (for `number` ms at most), "pause" (`number` ms), "eof" (no more is sent) or "reset" (the
    connection is reset when it is closed).
    """

    do: str
    data: bytes = b""
    number: int = 0
    text: str = ""


class Plan(NamedTuple):
    """The steps of one connection.

    Attributes:
        principal: the user whose rights the connection may have: "nobody", "mallory" or "root".
    """

    kind: str
    number: int
    principal: str
    steps: tuple[Step, ...]


def make_plan(seed: int, kind: str, number: int) -> Plan:
    return _Planner(seed, kind, number).plan()


class _Planner:
    def __init__(self, seed: int, kind: str, number: int) -> None:
        self.kind = kind
        self.number = number
        self.random = Random(f"{seed}/{kind}/{number}")
        self.values = Values(self.random)
        self.principal = "nobody"
        self.steps: list[Step] = []

    def plan(self) -> Plan:
        self.steps += self._opening()
        self.steps += self._end()
        return Plan(self.kind, self.number, self.principal, tuple(self.steps))

    def _opening(self) -> list[Step]:
        random = self.random
        match self.kind:
            case "plain":
                self.principal = "mallory"  # User:ANONYMOUS has the same rights
                if random.random() < 0.15:
                    return self._garbage()
                return self._requests()
            case "tls":
                self.principal = "mallory"
                if random.random() < 0.5:
                    return self._broken_tls()
                return [Step("tls"), *self._after_tls(self._requests)]
            case "mutual":
                identity = random.choice(IDENTITIES)
                if identity in PASSWORDS:
                    self.principal = identity
                if random.random() < 0.3:
                    return self._broken_tls()
                return [Step("tls", text=identity), *self._after_tls(self._requests)]
            case "secure":
                if random.random() < 0.3:
                    return self._broken_tls()
                return [Step("tls"), *self._after_tls(self._with_login)]
            case "sasl":
                return self._with_login()
        return self._sessions()

    def _with_login(self) -> list[Step]:
        if self.random.random() < 0.55:
            return self._conversation()
        return [*self._login(self._user()), *self._requests()]

    def _user(self) -> str:
        self.principal = self.random.choice(("mallory", "mallory", "root"))
        return self.principal

    def _login(self, user: str) -> list[Step]:
        random = self.random
        if random.random() < 0.15:
            mechanism = random.choice(("SCRAM-SHA-256", "SCRAM-SHA-512"))
            return [
                Step("send", self._handshake(mechanism)),
                Step("scram", text=f"{mechanism} {user}"),
            ]
        message = f"\0{user}\0{PASSWORDS[user]}".encode()
        data = self._handshake("PLAIN", 1) + self._token(message)
        return [Step("send", data)]

    # -- requests

    def frame(self, message: wire.Request[wire.Response], version: int) -> bytes:
        random = self.random
        client_id = random.choice(["fuzz", "fuzz", None, "", "x" * 300, "ä" * 20])
        try:
            parts = wire.encode_request(
                message,
                version=version,
                correlation_id=random.choice([1, 7, 2**31 - 1, -1]),
                client_id=client_id,
            )
        except ProtocolError:  # a text does not fit
            return framed(struct.pack(">hhih", message.API_KEY, version, 1, -1))
        return b"".join(map(bytes, parts))

    def _request(self) -> bytes:
        """Return one request, right or damaged; never one that `is_forbidden` names."""
        random = self.random
        while True:
            key = (
                random.choice(API_KEYS) if random.random() < 0.8 else random.choice((0, 1, 11, 68))
            )
            cls = wire.api(key)
            version = random.randint(cls.MIN_VERSION, cls.UNSTABLE_VERSION or cls.MAX_VERSION)
            message = self.values.request(key, version)
            assert isinstance(message, wire.Request)
            payload = self.frame(message, version)[4:]
            chance = random.random()
            if chance < 0.35:
                payload = damaged(random, payload)
            elif chance < 0.4:  # another API or version, with a body that does not fit
                head = struct.pack(
                    ">hh",
                    random.choice([key, 0, 3, 4, 5, 6, 7, 67, 92, -1, 32_767]),
                    random.choice([version + 1, version - 1, -1, 32_767, 0]),
                )
                payload = head + payload[4:]
            if not is_forbidden(payload, is_super=self.principal == "root"):
                break
        if random.random() < 0.03:
            return lying(random, payload)
        return framed(payload)

    def _requests(self) -> list[Step]:
        random = self.random
        if random.random() < 0.015:
            return [Step("send", self._giant()), Step("read", number=1500)]
        if random.random() < 0.03:
            return self._greedy()
        if random.random() < 0.2:
            kind = random.choice(("group", "transaction"))
            return [Step("talk", number=random.randrange(2**32), text=kind)]
        steps = []
        for _ in range(random.choice([1, 1, 2, 3])):
            data = b"".join(self._request() for _ in range(random.choice([1, 2, 4, 12])))
            if random.random() < 0.2:
                steps += [Step("send", piece) for piece in pieces(random, data)]
            else:
                steps.append(Step("send", data))
            if random.random() < 0.6:
                steps.append(Step("read", number=random.choice([20, 100, 300])))
        return steps

    def _greedy(self) -> list[Step]:
        """Return steps that make the broker hold memory: unread answers, or an incomplete frame."""
        random = self.random
        if random.random() < 0.5:
            asked = [wire.FetchPartition(partition=n, fetch_offset=0) for n in range(3)]
            topic = wire.FetchTopic(topic="shared", partitions=asked)
            fetch = self.frame(wire.FetchRequest(max_wait_ms=0, topics=[topic]), 12)
            every = self.frame(
                wire.DescribeConfigsRequest(
                    resources=[
                        wire.DescribeConfigsResource(resource_type=2, resource_name="shared")
                    ]
                ),
                4,
            )
            return [Step("send", (fetch + every) * 40), Step("pause", number=1500)]
        head = struct.pack(">ihhih", random.choice([1 << 20, 16 << 20]), 0, 9, 1, -1)
        body = bytes(random.choice([10_000, 1_000_000]))
        return [Step("send", head + body), Step("pause", number=1500)]

    def _giant(self) -> bytes:
        """Return a request with thousands of small elements; the loop must not stop for it."""
        random = self.random
        count = random.choice([3_000, 20_000])
        name = random.choice(["s", "shared", "secret"])
        message: wire.Request[wire.Response]
        match random.randrange(5):
            case 0:
                topics = [wire.MetadataRequestTopic(name=f"{name}{n}") for n in range(count)]
                message = wire.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
                return self.frame(message, 9)
            case 1:
                message = wire.DescribeGroupsRequest(groups=[f"fuzz-{n}" for n in range(count)])
                return self.frame(message, 5)
            case 2:
                keys = [f"fuzz-{n}" for n in range(count)]
                return self.frame(wire.FindCoordinatorRequest(coordinator_keys=keys), 6)
            case 3:
                fetched = [wire.FetchPartition(partition=n) for n in range(count)]
                topic = wire.FetchTopic(topic=name, partitions=fetched)
                return self.frame(wire.FetchRequest(max_wait_ms=100, topics=[topic]), 12)
        asked = [wire.ListOffsetsPartition(partition_index=n, timestamp=n) for n in range(count)]
        listed = wire.ListOffsetsTopic(name=name, partitions=asked)
        return self.frame(wire.ListOffsetsRequest(topics=[listed]), 7)

    # -- logins

    def _handshake(self, mechanism: str, version: int | None = None) -> bytes:
        if version is None:
            version = self.random.choice((0, 1))
        return self.frame(wire.SaslHandshakeRequest(mechanism=mechanism), version)

    def _token(self, message: bytes) -> bytes:
        version = self.random.choice((0, 1, 2))
        return self.frame(wire.SaslAuthenticateRequest(auth_bytes=message), version)

    def message(self) -> bytes:
        """Return a message of a mechanism, often damaged."""
        random = self.random
        user = random.choice(["mallory", "root", "nobody", "a=2Cb", "ä", "x" * 5000, ""])
        nonce = random.choice(["fyko+d2lbbFgONRv9qkxdawL", "", "x" * 20_000, "a,b"])
        found = random.choice(
            [
                f"\0{user}\0wrong",
                f"root\0{user}\0{PASSWORDS['mallory']}",
                f"\0{user}\0wrong\0more",
                f"n,,n={user},r={nonce}",
                f"n,a=root,n={user},r={nonce},tokenauth=true",
                f"p=tls-unique,,n={user},r={nonce}",
                f"y,,n={user},r={nonce},m=x",
                f"c=biws,r={nonce},p={base64.b64encode(b'x' * 32).decode()}",
                f"c=biws,r={nonce},p=",
                f"n,a={user},\x01auth=Bearer {self._jwt()}\x01\x01",
                f"n,,\x01auth=Bearer {self._jwt()}\x01host=x\x01x=y\x01\x01",
                "n,,\x01auth=Bearer \x01\x01",
                "\x01",
                "",
            ]
        ).encode()
        if random.random() < 0.4:
            found = damaged(random, found)
        if random.random() < 0.02:
            found += bytes(random.choice([20_000, 500_000]))
        return found

    def _jwt(self) -> str:
        random = self.random
        header = random.choice(
            [
                {"alg": "none"},
                {"alg": "HS256", "kid": "k"},
                {"alg": "RS256", "kid": "k"},
                {"alg": "RS256", "kid": "../../etc/passwd", "jku": "http://127.0.0.1:1/"},
                {"alg": "ES256", "crit": ["exp"], "exp": 1},
                {"alg": random.choice([None, 1, [], "x" * 3000])},
                {"alg": "RS256", "jwk": {"kty": "oct", "k": "AAAA"}, "zip": "DEF"},
            ]
        )
        times = [0, 1, 2**40, -1, 1e308, "1", None, [], True, 10**400]
        claims = {
            "sub": random.choice(["root", "mallory", "", 7, None, ["root"], "x" * 10_000]),
            "exp": random.choice(times),
            "iat": random.choice(times),
            "aud": random.choice(["kafka", ["kafka"] * 1000, {}, None]),
            "iss": random.choice(["x", None, 1]),
        }
        text = random.choice([json.dumps(claims), "[" * 5000, "{", '{"a":' * 3000, "null", "1e999"])
        parts = [json.dumps(header), text]
        packed = [base64.urlsafe_b64encode(each.encode()).decode().rstrip("=") for each in parts]
        packed.append(random.choice(["", "AAAA", "A" * 342, "!"]))
        return ".".join(packed[: random.choice([3, 3, 3, 2, 1])])

    def _conversation(self) -> list[Step]:
        """Return requests of a login in any order."""
        random = self.random
        if random.random() < 0.1:
            return self._garbage()
        if random.random() < 0.15:
            mechanism = random.choice(("SCRAM-SHA-256", "SCRAM-SHA-512"))
            user = random.choice(("mallory", "nobody"))
            damage = random.randint(1, 2**31)
            handshake = self._handshake(mechanism, 1)
            return [Step("send", handshake), Step("scram", b"", damage, f"{mechanism} {user}")]
        steps: list[Step] = []
        if random.random() < 0.7:
            steps.append(Step("send", self._handshake(random.choice(MECHANISMS))))
        for _ in range(random.randint(1, 4)):
            chance = random.random()
            if chance < 0.4:
                data = self._token(self.message())
            elif chance < 0.6:
                data = framed(self.message())
            elif chance < 0.75:
                data = self._handshake(random.choice([*MECHANISMS, "GSSAPI", "", "x" * 3000]))
            elif chance < 0.85:
                data = self.frame(wire.ApiVersionsRequest(), random.randint(0, 4))
            else:
                data = self._request()
            if random.random() < 0.25:
                data = damaged(random, data)
            if random.random() < 0.05:
                data = lying(random, data[4:])
            steps.append(Step("send", data))
            if random.random() < 0.5:
                steps.append(Step("read", number=50))
        return steps

    def _sessions(self) -> list[Step]:
        """Return logins and requests, on a listener where a session lasts for two seconds."""
        random = self.random
        if random.random() < 0.25:
            return self._conversation()
        user = self._user()
        steps = self._login(user)
        if random.random() < 0.6:  # after many requests the broker closes the connection
            steps += self._requests()
        for _ in range(random.randint(1, 3)):
            steps.append(Step("pause", number=random.choice([0, 300, 2100])))
            again = random.random()
            if again < 0.4:
                steps += self._login(user)
            elif again < 0.6:
                steps += self._login("root" if user == "mallory" else "mallory")
            else:
                steps += self._conversation()
            steps += self._requests()
        return steps

    # -- bytes that are no request, and TLS

    def _garbage(self) -> list[Step]:
        random = self.random
        data = random.choice(
            [
                b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                self._hello(),
                random.randbytes(random.choice([1, 5, 100, 5000])),
                framed(random.randbytes(random.randrange(300))),
                struct.pack(">i", 0) * 20,
                lying(random, random.randbytes(30)),
            ]
        )
        if random.random() < 0.1 and len(data) < 200:
            return [Step("slow", data)]
        return [Step("raw", data), Step("read", number=50)]

    def _hello(self) -> bytes:
        """Return a ClientHello of TLS that a server goes on with, as records."""
        random = self.random
        extensions = [
            (0, b"\0\x0c\0\0\x09localhost"),
            (10, b"\0\x04\0\x1d\0\x17"),
            (13, b"\0\x08\x04\x03\x08\x04\x08\x07\x04\x01"),
            (43, b"\x04\x03\x04\x03\x03"),
            (45, b"\x01\x01"),
            (51, b"\0\x26\0\x24\0\x1d\0\x20" + random.randbytes(32)),
        ]
        more = [
            (42, b""),  # early data
            (16, b"\0\x03\x02h2"),
            (35, random.randbytes(200)),  # a session ticket
            (0xFF01, b"\0"),
            (44, b"\0\x20" + random.randbytes(32)),  # a cookie
            (28, b"\x00\x40"),
            (41, b"\0\x0a\0\x04abcd\0\0\0\0\0\x21\x20" + bytes(32)),  # a pre-shared key
            (21, bytes(random.choice([0, 100, 12_000]))),
        ]
        extensions += random.sample(more, random.randrange(4))
        if random.random() < 0.5:
            random.shuffle(extensions)
        encoded = b"".join(
            struct.pack(">HH", number, len(data)) + data for number, data in extensions
        )
        ciphers = b"\x13\x02\x13\x01\x13\x03\xc0\x2b\xc0\x2f\xc0\x30\x00\xff"
        body = b"\x03\x03" + random.randbytes(32) + b"\x20" + random.randbytes(32)
        body += struct.pack(">H", len(ciphers)) + ciphers + b"\x01\x00"
        body += struct.pack(">H", len(encoded)) + encoded
        if random.random() < 0.4:
            body = damaged(random, body)
        message = b"\x01" + len(body).to_bytes(3, "big") + body
        if random.random() < 0.1:
            message = damaged(random, message)
        size = random.choice([16_000, 16_000, 100, 17])
        return b"".join(
            b"\x16\x03\x01"
            + struct.pack(">H", len(message[at : at + size]))
            + message[at : at + size]
            for at in range(0, len(message), size)
        )

    def _record(self) -> bytes:
        """Return a record of TLS with any content."""
        random = self.random
        kind = random.choice([20, 21, 22, 23, 24, 0, 255])
        data = random.choice(
            [
                b"\x01",
                b"\x01\x00",  # a warning
                b"\x02\x28",
                b"\0\0\0\0",  # HelloRequest
                b"\x18\0\0\x01\x01",  # KeyUpdate
                random.randbytes(random.choice([0, 17, 300, 16_384])),
            ]
        )
        size = len(data) if random.random() < 0.8 else random.choice([0, 16_385, 65_535])
        return bytes([kind, 3, random.choice([1, 3, 4])]) + struct.pack(">H", size) + data

    def _broken_tls(self) -> list[Step]:
        """Return what is no whole handshake of TLS."""
        random = self.random
        chance = random.random()
        if chance < 0.15:
            return self._garbage()
        if chance < 0.3:  # a real handshake that is given up after some bytes
            return [Step("tls", number=random.randint(1, 700), text=random.choice(IDENTITIES))]
        hello = self._hello()
        if chance < 0.4:
            hello = hello[: random.randrange(len(hello))]
        elif chance < 0.6:
            hello += b"".join(self._record() for _ in range(random.randint(1, 5)))
        elif chance < 0.7:
            hello = damaged(random, hello)
        elif chance < 0.75:
            return [Step("slow", hello[:60])]
        steps = [Step("raw", piece) for piece in pieces(random, hello, 4)]
        return [*steps, Step("read", number=50), Step("raw", self._record())]

    def _after_tls(self, inner: object) -> list[Step]:
        """Return the steps of `inner`, sometimes with bytes among them that TLS did not encrypt."""
        assert callable(inner)
        steps: list[Step] = inner()
        if self.random.random() < 0.25:
            at = self.random.randint(0, len(steps))
            steps.insert(at, Step("raw", self._record()))
        return steps

    def _end(self) -> list[Step]:
        random = self.random
        chance = random.random()
        if chance < 0.2:
            return [Step("reset")]
        if chance < 0.4:
            return [Step("eof"), Step("read", number=100)]
        if chance < 0.9:
            return [Step("read", number=random.choice([20, 200]))]
        return []
