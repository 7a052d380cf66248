"""Programs that do their worst to a gateway process, which is bounded: others lose nothing.

Small in the smoke run; with more connections and for longer in `make torture`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from textwrap import indent
from typing import Any, NamedTuple

import pytest

import aiokq
from aiokq import fastpath
from aiokq.gateway.client import encode
from tests.fault.gateway_support import (
    LIMIT,
    ROOT,
    Process,
    directory,
    gateway_process,
    records_of,
)
from tests.peers.memory import peak_bytes

MIB = 1 << 20
POOL = 64


def limit_bytes(pool: int = POOL) -> int:
    """Return the most memory that the process may use with a pool of so many MiB."""
    return int(1.25 * pool * MIB) + 60_000_000


pytestmark = [
    pytest.mark.build_independent,
    pytest.mark.skipif(not fastpath.COMPILED, reason="the limits are those of the compiled core"),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

FILE = """
[kafka]
bootstrap_servers = "{servers}"
[pool]
max_bytes = "{pool} MiB"
[delivery]
engine = "{engine}"
[[inputs]]
type = "unix_datagram"
path = "{path}/d"
[[inputs]]
type = "unix_stream"
path = "{path}/s"
max_message_bytes = "{largest} MiB"
max_connections = {connections}
partial_message_ms = 3000
[[inputs]]
type = "unix_stream"
path = "{path}/other"
max_connections = {connections}
partial_message_ms = 3000
[[inputs]]
type = "tcp"
port = 0
max_connections = {connections}
partial_message_ms = 3000
[http]
port = 0
"""


def configuration(
    servers: str,
    path: Path,
    *,
    connections: int,
    pool: int,
    engine: str = "producer",
    largest: int = 2,
) -> str:
    """Return a configuration; `largest` and `pool` are in MiB."""
    return FILE.format(
        servers=servers,
        path=path,
        connections=connections,
        pool=pool,
        engine=engine,
        largest=largest,
    )


START = """
import os, random, resource, socket, struct, sys, time
from aiokq.gateway.client import encode
path, tcp, seconds, count = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
source = random.Random(int(sys.argv[5]))
end = time.monotonic() + seconds
def stream(name):
    # Without a limit in time it would wait while others have all connections.
    form = socket.AF_INET if name == "tcp" else socket.AF_UNIX
    opened = socket.socket(form)
    opened.settimeout(1)
    opened.connect(("127.0.0.1", tcp) if name == "tcp" else f"{path}/{name}")
    opened.settimeout(None)
    return opened
def datagrams():
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    opened.connect(f"{path}/d")
    return opened
"""

HOSTILE = {
    # As many connections as it gets, most of them idle, some with the beginning of a message.
    "connections": """
held = []
while time.monotonic() < end:
    try:
        held.append(stream(source.choice(("s", "tcp"))))
        held[-1].setblocking(False)
        if source.random() < 0.5:
            held[-1].send(encode("orders", b"x" * 50)[: source.randrange(1, 60)])
    except OSError:
        time.sleep(0.001)
    if len(held) >= count:
        for opened in held[: count // 2]:
            opened.close()
        del held[: count // 2]
""",
    # Messages that never end: each takes as much memory as it may.
    "halves": """
whole = encode("orders", bytes(16 << 20))
held = []
while time.monotonic() < end:
    while len(held) < 60:
        opened = stream("s")
        opened.settimeout(0.2)
        held.append((opened, [0]))
    for opened, at in list(held):
        part = whole[at[0] : min(at[0] + source.randrange(1, 500_000), len(whole) - 1)]
        try:
            at[0] += opened.send(part) if part else 0
        except OSError:
            held.remove((opened, at))
            opened.close()
    time.sleep(0.01)
""",
    # A byte at a time.
    "slow": """
whole = encode("orders", b"slow")
held = [(stream("s"), [n]) for n in range(50)]
while time.monotonic() < end:
    for opened, at in list(held):
        try:
            opened.send(whole[at[0] % len(whole) :][:1])
            at[0] += 1
        except OSError:
            held.remove((opened, at))
            held.append((stream("s"), [0]))
    time.sleep(0.005)
""",
    # Topics that do not exist, with names of any length.
    "topics": """
opened, other = datagrams(), stream("s")
n = 0
while time.monotonic() < end:
    n += 1
    name = b"made-up-%d-%d-" % (os.getpid(), n) + b"x" * source.randrange(200)
    opened.send(encode(name, b"v"))
    other.sendall(encode(source.randbytes(source.randrange(1, 300)), b"v"))
    if n % 20 == 0:
        time.sleep(0.001)
""",
    # 16 MB, which one input takes and the other refuses, and sizes that are a lie.
    "large": """
block = encode("orders", bytes(16 << 20))
lies = [struct.pack(">i", 2**31 - 1) + bytes(1000), struct.pack(">i", -5) + bytes(9)]
while time.monotonic() < end:
    sender = datagrams()  # first, because others may have all connections
    try:
        sender.send(bytes(100_000))
    except OSError:
        pass
    sender.close()
    for data in (block, *lies):
        opened = stream(source.choice(("s", "tcp")))
        opened.settimeout(0.5)
        try:
            opened.sendall(data)
        except OSError:
            pass
        opened.close()
    time.sleep(0.01)
""",
    # Closed at every byte, properly or with a reset.
    "closed": """
whole = encode("orders", b"cut off", key=b"k", partition_key=3)
at = 0
while time.monotonic() < end:
    at = at % (len(whole) - 1) + 1
    for name in ("s", "tcp"):
        opened = stream(name)
        opened.send(whole[:at])
        if source.random() < 0.5:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        opened.close()
    time.sleep(0.001)
""",
    # Any bytes.
    "noise": """
opened = datagrams()
while time.monotonic() < end:
    data = bytearray(encode(f"made-up-{source.randrange(500)}", source.randbytes(50)))
    for _ in range(source.randrange(6)):
        data[source.randrange(len(data))] = source.randrange(256)
    opened.send(data)
    other = stream(source.choice(("s", "tcp")))
    try:
        other.sendall(source.randbytes(source.randrange(5000)))
    except OSError:
        pass
    other.close()
    time.sleep(0.001)
""",
}

ATTACK = """
def attack():
{}
while time.monotonic() < end:
    try:
        attack()
    except OSError:  # another one has all connections
        time.sleep(0.01)
"""

GOOD = """
partition, kind = int(sys.argv[6]), sys.argv[7]
opened = datagrams() if kind == "d" else stream(kind)
n = 0
print("open", flush=True)
while time.monotonic() < end:
    opened.sendall(encode("good", b"%d" % n + b" " * 100, partition_key=partition))
    n += 1
    if n % 10 == 0:
        time.sleep(0.01)
print(n, flush=True)
"""


async def program(code: str, *arguments: object) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        START + code,
        *map(str, arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


class Resources(NamedTuple):
    """What a process uses.

    Attributes:
        peak: the most resident memory until now.
    """

    peak: int
    descriptors: int
    threads: int

    @classmethod
    def of(cls, pid: int) -> Resources:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        found = {name: rest for name, _, rest in (line.partition(":") for line in lines)}
        return cls(peak_bytes(pid), len(os.listdir(f"/proc/{pid}/fd")), int(found["Threads"]))


def text_at(url: str, path: str) -> str:
    with urllib.request.urlopen(url + path, timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def asked(url: str, path: str) -> Any:
    return json.loads(text_at(url, path))


class Attacked:
    """A gateway process with a broker."""

    def __init__(self, process: Process, path: Path, kafka: aiokq.EmbeddedCluster) -> None:
        self.process = process
        self.path = path
        self.kafka = kafka
        self.servers = kafka.bootstrap_servers
        self.url: str = process.ready["http"]
        self.pid: int = process.ready["pid"]
        self.tcp = process.ready["inputs"][-1]["address"].rpartition(":")[2]

    async def accounting(self) -> dict[str, Any]:
        found: dict[str, Any] = await asyncio.to_thread(asked, self.url, "/accounting/json")
        for one in (found, *found["topics"].values()):
            known = one["acked"] + sum(one["discarded"].values()) + one["dead_lettered"]
            assert one["received"] == known + one["in_flight"]
        return found


@contextlib.asynccontextmanager
async def attacked(
    connections: int,
    pool: int = POOL,
    more: str = "",
    *,
    engine: str = "producer",
    largest: int = 2,
) -> AsyncIterator[Attacked]:
    with directory() as path:
        async with aiokq.EmbeddedCluster() as kafka:
            servers = kafka.bootstrap_servers
            async with aiokq.Admin(servers) as admin:
                topics = {"orders": 1, "good": 4, "dead": 1}
                await admin.create_topics([aiokq.NewTopic(*topic) for topic in topics.items()])
            file = path / "gateway.toml"
            text = configuration(
                servers, path, connections=connections, pool=pool, engine=engine, largest=largest
            )
            file.write_text(text + more)
            async with gateway_process("--config", str(file)) as process:
                await process.started()
                yield Attacked(process, path, kafka)


SOME = 16
"""Descriptors and threads that do not depend on the number of hostile programs."""
LONG = [pytest.mark.torture, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    ("engine", "connections", "seconds"),
    [
        ("producer", 600, 6.0),
        ("bruce", 600, 2.0),
        pytest.param("producer", 4000, 120.0, marks=LONG),
        pytest.param("bruce", 4000, 120.0, marks=LONG),
    ],
)
async def test_hostile_programs_cost_others_nothing_and_what_they_use_is_bounded(
    engine: str, connections: int, seconds: float
) -> None:
    """Memory, descriptors and threads of the process; and descriptors are closed afterwards."""
    async with attacked(connections, engine=engine, largest=17) as a:
        before = Resources.of(a.pid)

        def call(code: str, lasts: float, seed: int, *more: object) -> Any:
            return program(code, a.path, a.tcp, lasts, connections * 2, seed, *more)

        # Their connections are open when the attack begins: later ones may wait.
        good = [
            await call(GOOD, seconds + 2, n, n, kind)
            for n, kind in enumerate(("d", "s", "tcp", "other"))
        ]
        for one in good:
            assert one.stdout is not None
            assert await one.stdout.readline() == b"open\n"
        hostile = [
            await call(ATTACK.format(indent(code, "    ")), seconds, seed)
            for seed, code in enumerate(HOSTILE.values())
        ]
        ends = asyncio.gather(*(one.communicate() for one in (*hostile, *good)))
        most = before
        last = 0
        while not ends.done():
            found = await a.accounting()
            assert found["received"] >= last
            last = found["received"]
            most = Resources(*map(max, most, Resources.of(a.pid)))
            assert asked(a.url, "/readyz")["ready"]
            await asyncio.sleep(0.2)
        outputs = await ends
        for one, (_, errors) in zip((*hostile, *good), outputs, strict=True):
            assert one.returncode == 0, errors.decode()
        sent = [int(out) for out, _ in outputs[len(hostile) :]]
        assert min(sent) > 100
        async with asyncio.timeout(2 * LIMIT):
            while True:
                found = await a.accounting()
                if found["topics"]["good"]["acked"] >= sum(sent) and not found["in_flight"]:
                    break
                await asyncio.sleep(0.1)
        assert found["topics"]["good"]["discarded"] == {}
        assert found["topics"]["good"]["received"] == found["topics"]["good"]["acked"] == sum(sent)
        assert len(found["topics"]) == 2  # names that do not exist take no memory
        assert "made-up" not in await asyncio.to_thread(text_at, a.url, "/metrics")
        for reason in ("malformed", "bad_topic", "unclean_disconnect", "too_long"):
            assert found["discarded"][reason] > 0, found["discarded"]
        assert Resources.of(a.pid).peak < limit_bytes(), f"{before} at the start"
        # Three inputs with connections; the rest are those to Kafka and to HTTP.
        assert most.descriptors <= before.descriptors + 3 * connections + SOME
        assert most.threads <= before.threads + SOME
        async with asyncio.timeout(LIMIT):
            while Resources.of(a.pid).descriptors > before.descriptors + SOME:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        a.process.signal(signal.SIGTERM)
        assert await a.process.ended() == 0
        records = await records_of(a.servers, "good")
        for partition, count in enumerate(sent):
            values = [int(one.value or b"-1") for one in records if one.partition == partition]
            assert values == list(range(count))


NAMES = """
kind, many = sys.argv[6], int(sys.argv[7])
opened = datagrams() if kind == "d" else stream(kind)
for n in range(many):
    opened.sendall(encode(b"made-up-%d-%d" % (os.getpid(), n), b"v"))
"""


@pytest.mark.parametrize("kind", ["d", "s", "tcp"])
async def test_made_up_topics_cost_no_real_topic_its_messages_while_kafka_is_away(
    kind: str,
) -> None:
    """Names that cannot be looked up are bounded, by sender; real topics win when Kafka answers."""
    names = [f"real-{n}" for n in range(40)]
    with directory() as path:
        data = path / "data"
        async with aiokq.EmbeddedCluster(data_dir=data) as kafka:
            servers = kafka.bootstrap_servers
            async with aiokq.Admin(servers) as admin:
                await admin.create_topics([aiokq.NewTopic(name, 1) for name in names])
        file = path / "gateway.toml"
        # A pool of 2 MiB takes 819 names.
        text = configuration(servers, path, connections=100, pool=2)
        file.write_text(text)
        async with gateway_process("--config", str(file)) as process:
            await process.started()
            url: str = process.ready["http"]
            tcp = process.ready["inputs"][-1]["address"].rpartition(":")[2]
            sender = socket.socket(socket.AF_UNIX)
            sender.connect(f"{path}/s")
            for name in names[:20]:
                sender.sendall(encode(name, b"before"))
            attack = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                START + NAMES,
                *map(str, (path, tcp, 60, 0, 1, kind, 20_000)),
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
            assert await attack.wait() == 0
            for name in names[20:]:
                sender.sendall(encode(name, b"afterwards"))
            sender.close()
            async with asyncio.timeout(20):
                while True:
                    found = await asyncio.to_thread(asked, url, "/accounting/json")
                    if found["received"] == 20_040:
                        break
                    await asyncio.sleep(0.05)
            assert set(found["discarded"]) == {"bad_topic"}
            assert found["in_flight"] <= 820
            port = int(servers.rpartition(":")[2])
            async with aiokq.EmbeddedCluster(data_dir=data, port=port):
                async with asyncio.timeout(30):
                    while found["acked"] < 40 or found["in_flight"]:
                        found = await asyncio.to_thread(asked, url, "/accounting/json")
                        await asyncio.sleep(0.05)
                assert found["discarded"] == {"bad_topic": 20_000}
                assert found["topics"].keys() == set(names)
                process.signal(signal.SIGTERM)
                assert await process.ended() == 0


FLOOD = """
size, kind = int(sys.argv[6]), sys.argv[7]
opened = datagrams() if kind == "d" else stream(kind)
one = encode("orders", b"v" * size)
block = one if kind == "d" else one * (100_000 // len(one) + 1)
while time.monotonic() < end:
    opened.sendall(block)
"""


@pytest.mark.parametrize("size", [pytest.param(50, marks=pytest.mark.torture), 1000, 60_000])
async def test_a_full_pool_is_bounded_while_reports_are_read(size: int) -> None:
    """Kafka has stopped, and all inputs are flooded for longer than the pool takes to fill."""
    async with attacked(100) as a:
        first = await program(FLOOD, a.path, a.tcp, 0.2, 0, 0, size, "d")
        await first.communicate()
        await a.kafka.close()
        floods = [
            await program(FLOOD, a.path, a.tcp, 60.0, 0, n, size, kind)
            for n, kind in enumerate(("d", "s", "tcp"))
        ]
        full = 0
        async with asyncio.timeout(60):
            while full < 20:
                full += "no_memory" in (await a.accounting())["discarded"]
                for path in ("/queues/json", "/discards/json", "/counters/json", "/status/json"):
                    await asyncio.to_thread(asked, a.url, path)
        for one in floods:
            one.kill()
            await one.communicate()
        peak = Resources.of(a.pid).peak
        assert peak < limit_bytes(), f"{peak:,} B at most"


@pytest.mark.parametrize("engine", ["producer", "bruce"])
async def test_many_topics_are_a_part_of_the_pool(engine: str) -> None:
    """Regression: with 1,000 topics, the process took 30 MB more than its limit."""
    names = [f"topic-{n}" for n in range(1000)]
    async with attacked(100, engine=engine) as a:
        async with aiokq.Admin(a.servers) as admin:
            await admin.create_topics([aiokq.NewTopic(name, 1) for name in names])
        opened = socket.socket(socket.AF_UNIX)
        opened.connect(f"{a.path}/s")
        opened.sendall(b"".join(encode(name, b"v") for name in names))
        async with asyncio.timeout(90):
            while (await a.accounting())["acked"] < len(names):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        await a.kafka.close()
        block = b"".join(encode(name, b"v" * 50) for name in names) * 20
        async with asyncio.timeout(90):
            while (found := await a.accounting())["discarded"].get("no_memory", 0) < 100_000:
                await asyncio.to_thread(opened.sendall, block)
        opened.close()
        assert found["in_flight"] > 400_000
        peak = Resources.of(a.pid).peak
        assert peak < limit_bytes(), f"{peak:,} B at most"


LETTERS = """
size, names = int(sys.argv[6]), sys.argv[7]
opened = stream("s")
n = 0
while time.monotonic() < end:
    n += 1
    name = f"no/name-{n}" if names == "many" else "orders" if n % 2 else "no/name"
    opened.sendall(encode(name, bytes(size)))
"""


@pytest.mark.parametrize(
    ("pool", "size", "names"), [(16, 50, "many"), (16, 1000, "many"), (64, 60_000, "one")]
)
async def test_dead_letters_are_a_part_of_the_pool(pool: int, size: int, names: str) -> None:
    """Regression: with many names, or large messages, they took up to 60 MB more."""
    letters = '[dead_letters]\ntopic = "dead"\nmax_per_s = 0\n'
    async with attacked(100, pool, letters) as a:
        with socket.socket(socket.AF_UNIX) as opened:
            opened.connect(f"{a.path}/s")
            opened.sendall(encode("no/name", b"v") + encode("orders", b"v"))
        async with asyncio.timeout(60):
            found = await a.accounting()
            while found["dead_lettered"] + found["acked"] < 2:
                await asyncio.sleep(0.05)
                found = await a.accounting()
        await a.kafka.close()
        flood = await program(LETTERS, a.path, a.tcp, 60.0, 0, 0, size, names)
        full = 0
        async with asyncio.timeout(60):
            while full < 20:
                found = await a.accounting()
                full += "bad_topic" in found["discarded"]
                await asyncio.sleep(0.05)
        flood.kill()
        await flood.communicate()
        assert found["in_flight"] > 100
        assert set(found["discarded"]) <= {"bad_topic", "no_memory"}
        peak = Resources.of(a.pid).peak
        assert peak < limit_bytes(pool), f"{peak:,} B at most"
