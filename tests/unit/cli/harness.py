"""The command line on a cluster in memory: whole commands, from arguments to output, no sockets."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from aiokq.broker.embedded import EmbeddedCluster
from aiokq.cli.app import execute
from aiokq.cli.session import Session
from tests.sim.harness.loop import SimLoop
from tests.sim.harness.simulation import Simulation

T = TypeVar("T")

SERVERS = "127.0.0.1:9092"


class SimulatedSession(Session):
    """Runs commands on one virtual loop, on which a broker runs, too; it stays between commands.

    Args:
        settings: settings of the broker.
        acls: ACLs of the broker; None for no authorizer.

    Attributes:
        world: network and disks.
        kafka: the broker at `SERVERS`.
    """

    def __init__(
        self, settings: Mapping[str, Any] | None = None, *, acls: Sequence[str] | None = None
    ) -> None:
        loop = SimLoop(limit=36_000)
        self.world = Simulation(0, loop)
        self.environment = self.world.environment()
        self.runner = asyncio.Runner(loop_factory=lambda: loop)
        self.kafka = EmbeddedCluster(
            port=9092, environment=self.world.environment(), settings=settings, acls=acls
        )

    def run(self, main: Coroutine[object, object, T]) -> T:
        return self.runner.run(main)

    def __enter__(self) -> SimulatedSession:
        self.runner.__enter__()
        self.run(self.kafka.start())
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self.run(self.kafka.close())
        self.runner.__exit__(*exc_info)


@dataclass
class Result:
    """Exit code and output of a command."""

    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.decode().splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        """The only line on stderr."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        return lines[0]


class Input(io.TextIOWrapper):
    """Standard input in memory, which may claim to be a terminal."""

    def __init__(self, data: bytes, *, terminal: bool) -> None:
        super().__init__(io.BytesIO(data))
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


class CommandLine:
    """Runs commands, with `-b` unless `servers` is None."""

    def __init__(
        self,
        session: Session,
        capture: pytest.CaptureFixture[bytes],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.session = session
        self._capture = capture
        self._monkeypatch = monkeypatch

    def __call__(
        self,
        *arguments: str,
        stdin: bytes = b"",
        servers: str | None = SERVERS,
        terminal: bool = False,
    ) -> Result:
        self._capture.readouterr()
        self._monkeypatch.setattr("sys.stdin", Input(stdin, terminal=terminal))
        given = [] if servers is None else ["-b", servers]
        code = execute([*arguments, *given], self.session)
        captured = self._capture.readouterr()
        return Result(code, captured.out, captured.err.decode())
