"""The memory of the gateway's process stays near what its pool charges."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests import cores

pytestmark = [
    pytest.mark.build_independent,
    pytest.mark.skipif(not cores.BUILT, reason="the compiled core is not built"),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

START = """
import os, random
from aiokq.fastpath.gateway import Pool
from tests.gateway_messages import encode
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
"""


def grown(code: str) -> int:
    """Run `code` in a process of its own; return the growth that it prints, in bytes."""
    done = subprocess.run(
        [sys.executable, "-c", START + code], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize("topics", [1, 50])
@pytest.mark.parametrize("size", [50, 1024, 60_000])
def test_a_full_pool(size: int, topics: int) -> None:
    """1.25 x pool, for small, middle and large messages."""
    most = 64 << 20
    code = f"""
pool = Pool({most})
before = resident()
block = b"".join(encode(b"t%d" % n, b"v" * {size}) for n in range({topics}))
block *= 100_000 // len(block) + 1
for n in range({topics}):
    pool.register(b"t%d" % n, batch_ms=100_000)
while not sum(pool.counts().discarded):
    pool.feed(block)
print(resident() - before)
"""
    assert grown(code) < 1.25 * most


def test_a_million_messages() -> None:
    """Under 250 MB at 100 B, Python included."""
    code = """
pool = Pool(1 << 30)
pool.register(b"t", batch_ms=100_000)
block = encode(b"t", b"v" * 100) * 1000
for _ in range(1000):
    pool.feed(block)
assert pool.counts().held == 1_000_000
print(resident())
"""
    assert grown(code) < 250_000_000


def test_a_message_in_each_of_5000_topics() -> None:
    code = """
pool = Pool(1 << 27)
before = resident()
for n in range(5000):
    pool.register(b"topic-%d" % n, batch_ms=100_000)
    pool.feed(encode(b"topic-%d" % n, b"v" * 50))
print(resident() - before)
"""
    assert grown(code) < 20_000_000


def test_batches_that_end_inside_segments() -> None:
    """Regression: a few messages that wait held the memory of all before them in their segment."""
    most = 16 << 20
    code = f"""
pool = Pool({most})
rng = random.Random(1)
slots = [pool.register(b"t%d" % n, batch_messages=50) for n in range(1000)]
before = largest = resident()
for turn in range(4000):
    n = rng.randrange(1000)
    count = rng.choice([1, 40, 130, 900])
    pool.feed(encode(b"t%d" % n, b"v" * rng.choice([10, 100, 300])) * count)
    while (taken := pool.take(slots[n])) is not None:
        pool.release(taken.count, taken.charge)
    if turn % 100 == 0:
        largest = max(largest, resident())
assert sum(pool.counts().discarded) == 0
print(largest - before)
"""
    assert grown(code) < 1.25 * most + 10_000_000


def test_messages_come_and_go_at_the_limit() -> None:
    """Arenas of all sizes, allocated and freed in any order."""
    most = 32 << 20
    code = f"""
pool = Pool({most})
rng = random.Random(2)
slots = [pool.register(b"t%d" % n) for n in range(300)]
before = largest = resident()
held = []
for turn in range(6000):
    n = rng.randrange(300)
    value = b"v" * rng.choice([20, 20, 500, 5000, 60_000])
    pool.feed(encode(b"t%d" % n, value, b"k" * rng.randrange(20)) * rng.choice([1, 5, 100]))
    while (taken := pool.take(slots[n])) is not None:
        held.append(taken)
    while len(held) > 20 and pool.counts().used_bytes > 0.95 * {most}:
        taken = held.pop(rng.randrange(len(held)))
        pool.release(taken.count, taken.charge)
    if turn % 100 == 0:
        largest = max(largest, resident())
print(largest - before)
"""
    assert grown(code) < 1.25 * most + 12_000_000


def test_the_memory_of_finished_messages_is_used_again() -> None:
    """Pages of the system are not needed for each batch again, while the pool has messages."""
    code = """
import resource
pool = Pool(128 << 20)
slot = pool.register(b"t")
pool.feed(encode(b"t", b"it stays"))
kept = pool.take(slot)
block = encode(b"t", b"v" * 100) * 3000
def turn():
    pool.feed(block)
    while (taken := pool.take(slot)) is not None:
        pool.release(taken.count, taken.charge)
for _ in range(20):
    turn()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(200):
    turn()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    assert grown(code) < 2000  # 200 x 440 KB are 21,000 pages


@pytest.mark.parametrize("most", [16, 128])
def test_little_memory_waits_to_be_used_again(most: int) -> None:
    """A 32nd of the pool; and nothing once the pool is empty."""
    code = f"""
pool = Pool({most} << 20)
slot = pool.register(b"t")
pool.feed(encode(b"t", b"it stays"))
kept = pool.take(slot)
block = encode(b"t", b"v" * 300) * 1000
held = []
for _ in range(300):  # so that the memory of Python's objects does not count
    pool.feed(encode(b"t", b"v"))
    held.append(pool.take(slot))
for taken in held:
    pool.release(taken.count, taken.charge)
held.clear()
before = resident()
for _ in range(3):
    while pool.counts().used_bytes < ({most} << 20) * 7 // 8:
        pool.feed(block)
        while (taken := pool.take(slot)) is not None:
            held.append(taken)
    assert resident() - before > ({most} << 20) * 3 // 4
    for taken in held:
        pool.release(taken.count, taken.charge)
    taken = None
    held.clear()
    assert resident() - before < ({most} << 20) // 32 + 1_000_000
{{end}}
print(resident() - before)
"""
    for end in (
        "pool.release(kept.count, kept.charge)",
        "pool.close()",
    ):
        assert grown(code.format(end=end)) < 1_000_000


def test_incomplete_messages_leave_no_holes() -> None:
    """Regression: small ones kept the memory of large ones, which were gone, in each heap."""
    code = """
import socket, tempfile, time
from aiokq.fastpath.gateway import Intake
pool = Pool(64 << 20)
directory = tempfile.TemporaryDirectory()
inputs, kept = [], []
def until(held):
    end = time.monotonic() + 60
    while not held(pool.counts().partial_bytes):
        assert time.monotonic() < end
        time.sleep(0.001)
def connect(n):
    client = socket.socket(socket.AF_UNIX)
    client.connect(f"{directory.name}/{n}")
    return client
whole = encode(b"t", bytes(1_500_000))
for n in range(4):
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(f"{directory.name}/{n}")
    listening.listen(100)
    inputs.append((listening, Intake(pool, listening.fileno(), "unix_stream",
                                     max_message_bytes=1 << 21)))
    inputs[n][1].start()
before = resident()
for n in range(4):
    large = [connect(n) for _ in range(20)]
    for at in range(0, 1_400_000, 100_000):
        for client in large:
            client.sendall(whole[at : at + 100_000])
        kept.append(connect(n))
        kept[-1].sendall(whole[:3000])
    until(lambda held: held >= 28_000_000)
    for client in large:
        client.close()
    until(lambda held: held < 5_000_000)
print(resident() - before)
for listening, intake in inputs:
    intake.stop()
"""
    assert grown(code) < 20_000_000
