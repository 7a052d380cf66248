"""A whole Gateway in virtual time: without the threads of its inputs, and without HTTP.

Messages are fed to its pool, or to its spool, instead of a socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aiokq import Cluster, wire
from aiokq.core.environment import Environment
from aiokq.gateway import Gateway, delivery, gateway, input_set
from aiokq.gateway.client import encode
from tests.sim.harness.simulation import Simulation
from tests.sim.producer_world import CLIENT, Kafka, simulate


class _Intake:
    """An input without a thread."""

    def __init__(self, *arguments: object, **options: object) -> None:
        self.running = False

    def start(self) -> None:
        self.running = True

    def stop(self, *, drain_ms: int = 0) -> None:
        self.running = False

    def counts(self) -> Any:
        return SimpleNamespace(
            running=self.running, unclean_disconnects=0, refused=0, no_memory=0, displaced=0
        )

    def change(self, **options: object) -> None:
        assert self.running


class GatewayWorld:
    """A gateway, not started, in front of a scripted cluster.

    Attributes:
        path: a directory of its own.
        sent: the messages that were fed.
    """

    def __init__(
        self, simulation: Simulation, kafka: Kafka, path: Path, values: Mapping[str, Any]
    ) -> None:
        self.simulation = simulation
        self.kafka = kafka
        self.path = path
        self.file = path / "gateway.toml"
        self.sent = 0
        self._timer: asyncio.TimerHandle | None = None
        self.write(**values)
        self.gateway = Gateway(self.file)

    def write(self, **values: Any) -> None:
        """Write the configuration file; tables are dicts of numbers and texts."""
        lines = []
        given = {"kafka": {"bootstrap_servers": self.kafka.bootstrap_servers}, **values}
        inputs = given.pop("inputs", ("stream",))
        for name in inputs:
            lines += ["[[inputs]]", 'type = "unix_stream"', f'path = "{self.path}/{name}"']
        for table, options in given.items():
            lines.append(f"[{table}]")
            for name, value in options.items():
                text = f'"{value}"' if isinstance(value, str) else str(value).lower()
                lines.append(f"{name} = {text}")
        self.file.write_text("\n".join(lines))

    def feed(self, *messages: tuple[str, bytes]) -> None:
        """Receive messages: topics and values."""
        made = self.gateway
        now = self._set_clock()
        data = b"".join(encode(topic, value, timestamp_ms=now) for topic, value in messages)
        self.sent += len(messages)
        if made.spool is None:
            assert made.pool.feed(data) == len(data)
        else:
            assert made.spool.writer.append(data, now) == -1
            made.spool._woken()
        self._tick()

    def _set_clock(self) -> int:
        now = self.simulation.clock.timestamp_ms()
        self.gateway.pool.set_clock(int(asyncio.get_running_loop().time() * 1000), now)
        return now

    def _tick(self) -> None:
        """Wake the gateway often, as its pool does by a descriptor."""
        if self._timer is not None:
            self._timer.cancel()
        if self.gateway._final is None:
            self._set_clock()
            self.gateway._pump()
            self._timer = asyncio.get_running_loop().call_later(0.002, self._tick)


@contextlib.contextmanager
def _patched(environment: Environment, now_ms: Callable[[], int]) -> Iterator[None]:
    def new_cluster(settings: Any) -> Cluster:
        return Cluster(
            settings.kafka["bootstrap_servers"],
            _environment=environment,
            bootstrap_timeout_ms=0,
            allow_auto_create_topics=False,
            reconnect_backoff_ms=50,
        )

    async def nothing(*_: object) -> None:
        pass

    with pytest.MonkeyPatch.context() as patch:
        for module in (gateway, delivery):
            patch.setattr(module, "new_cluster", new_cluster)
        patch.setattr(input_set, "Intake", _Intake)
        patch.setattr(delivery, "_now_ms", now_ms)
        patch.setattr("aiokq.gateway.reports.scribe.Scribe.flush", nothing)
        yield


def with_gateway(
    body: Callable[[GatewayWorld], Coroutine[Any, Any, Any]],
    values: Mapping[str, Any] | None = None,
    topics: Mapping[str, list[int]] | None = None,
    *,
    nodes: int = 1,
    seed: int = 1,
) -> None:
    """Run `body` with a gateway that is not started."""
    # Not pytest's directory: the path of a socket has to be short.
    path = Path(tempfile.mkdtemp(prefix="gw-", dir="/tmp"))

    async def main(simulation: Simulation, kafka: Kafka) -> None:
        for name, leaders in (topics or {"t": [1, 1, 1], "u": [1], "dead": [1]}).items():
            kafka.topic(name, leaders)
        kafka.on(wire.DescribeConfigsRequest, wire.DescribeConfigsResponse(results=[]))
        loop: Any = simulation.loop
        loop.add_reader = lambda *_: None
        loop.remove_reader = lambda *_: True
        with _patched(simulation.environment(CLIENT), simulation.clock.timestamp_ms):
            await body(GatewayWorld(simulation, kafka, path, values or {}))

    try:
        simulate(main, nodes=nodes, seed=seed)
    finally:
        shutil.rmtree(path, ignore_errors=True)
