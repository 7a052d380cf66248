"""The broker under test: `aiokq broker` with a probe, a socket that tells its inner state.

`python -m tests.fault.fuzz.serving DIRECTORY`
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import sys
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import ClassVar

import aiokq.broker.node as node_module
from aiokq.broker.gate import Gate
from aiokq.broker.node import BrokerNode
from aiokq.broker.process import main
from aiokq.connection.request_context import RequestContext, SessionState
from tests.fault.fuzz.fixture import Fixture


class CountingGate(Gate):
    """A gate that counts the connections on which requests came after the authentication."""

    __slots__ = ()
    authenticated: ClassVar[defaultdict[str, set[int]]] = defaultdict(set)
    """The numbers of these connections, by listener."""

    def admit(self, connection: RequestContext, api_and_version: int, nbytes: int) -> bool:
        if connection.session.state is SessionState.READY:
            self.authenticated[connection.listener].add(connection.connection_id)
        return super().admit(connection, api_and_version, nbytes)


class ProbedNode(BrokerNode):
    """A node that tells its state to whoever connects to the socket of the probe."""

    probe = ""

    async def start(self) -> None:
        self.gate.__class__ = CountingGate
        await super().start()
        self._beaten = time.thread_time()
        self._held: list[tuple[float, dict[str, int]]] = []
        self._before: dict[str, int] = {}
        self._beat()
        self._probe_server = await asyncio.start_unix_server(self._tell, self.probe)

    def _beat(self) -> None:
        """Note the longest times between two beats, in seconds of CPU, and the requests in them.

        A beat is due 10 ms after the one before, so a long time means that a step of the loop was
        long.
        """
        now = time.thread_time()
        requests = dict(self.counters.requests)
        if now - self._beaten > 0.1:
            answered = {
                name: count - self._before.get(name, 0)
                for name, count in requests.items()
                if count != self._before.get(name, 0)
            }
            self._held = sorted([*self._held, (round(now - self._beaten, 2), answered)], key=_step)
            del self._held[:-5]
        self._before = requests
        self._beaten = time.thread_time()
        asyncio.get_running_loop().call_later(0.01, self._beat)

    async def close(self) -> None:
        self._probe_server.close()
        await super().close()

    async def _tell(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if await reader.readline() == b"collect\n":
                gc.collect()
            writer.write(json.dumps(self.state()).encode())
            await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    def state(self) -> dict[str, object]:
        servers = [one.server for one in self.servers._opened]
        names = Counter(re.sub(r"[\d.:\[\]-]+", "#", t.get_name()) for t in asyncio.all_tasks())
        names.pop("Task#", None)  # the probe's own, and those of asyncio's streams
        return {
            "tasks": dict(names),
            "connections": {one._name: one.connections for one in servers},
            "budget": servers[0].budget.used,
            "authenticated": {
                name.lower(): len(found) for name, found in CountingGate.authenticated.items()
            },
            "delayed fetches": len(self.purgatory),
            "groups with members": sum(
                count
                for (_, name), count in self.counters.groups.read().items()
                if name not in ("Empty", "Dead")
            ),
            "open transactions": sum(
                count
                for (name,), count in self.counters.transactional_ids.read().items()
                if name not in ("Empty", "CompleteCommit", "CompleteAbort", "Dead")
            ),
            "sockets": _sockets(),
            "fetch sessions": len(self.fetch_sessions),
            "threads": threading.active_count(),
            "logins": dict(self.counters.logins),
            "failed logins": dict(self.counters.failed_logins),
            "requests": dict(self.counters.requests),
            "held": self._held,
            "errors": {str(name): count for name, count in self.counters.errors.items()},
        }


def _sockets() -> int:
    """Return the number of sockets of this process."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
        except FileNotFoundError:  # the descriptor of this list itself
            pass
    return found


def _step(held: tuple[float, dict[str, int]]) -> float:
    return held[0]


if __name__ == "__main__":
    fixture = Fixture.load(Path(sys.argv[1]))
    ProbedNode.probe = str(fixture.probe)
    node_module.BrokerNode = ProbedNode  # type: ignore[misc]
    sys.exit(
        main(
            [
                *("--json", "--config", str(fixture.properties)),
                *("--data-dir", str(fixture.directory / "data")),
            ]
        )
    )
