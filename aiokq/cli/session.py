"""Session: event loop and clients of a command."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from aiokq.core.clock import SystemClock

if TYPE_CHECKING:
    import asyncio

    from aiokq.admin.client import Admin
    from aiokq.client.cluster import Cluster
    from aiokq.cluster.settings import ClusterSettings
    from aiokq.core.environment import Environment

__all__ = ["Session", "Terminated", "loop_factory"]

T = TypeVar("T")


class Terminated(Exception):
    """SIGTERM ended the command, as Ctrl-C would."""


class Session:
    """Runs the coroutine of a command and creates its clients.

    Commands get the session as `ctx.obj`.

    Attributes:
        environment: network and clock of the clients, set by tests; None for the real network and
            clock.
    """

    environment: Environment | None = None

    def run(self, main: Coroutine[object, object, T]) -> T:
        """Run the asynchronous part of a command on a loop of its own.

        Raises:
            KeyboardInterrupt, Terminated: Ctrl-C or SIGTERM cancelled `main`. Raised when `main`
                has ended, or at once after a second Ctrl-C.
        """
        import asyncio  # imported here, so that `aiokq --help` does not load it

        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(_until_terminated(main))

    def now_ms(self) -> int:
        """Return the current time in milliseconds since 1970."""
        clock = SystemClock() if self.environment is None else self.environment.clock
        return clock.timestamp_ms()

    def cluster(self, settings: ClusterSettings) -> Cluster:
        """Return a cluster that is not started yet."""
        from aiokq.client.cluster import Cluster

        return Cluster(settings=settings, _environment=self.environment)

    def admin(self, bootstrap_servers: str | None, config: Path | None) -> Admin:
        """Return an admin client that is not started yet.

        Raises:
            ConfigError: a setting is unknown or refused.
            typer.BadParameter: no bootstrap servers were given anywhere.
        """
        from aiokq.admin.client import Admin
        from aiokq.admin.settings import AdminSettings
        from aiokq.cli.settings import client_settings

        settings = client_settings(AdminSettings, bootstrap_servers, config)
        return Admin(settings=settings, _environment=self.environment)


async def _until_terminated(main: Coroutine[object, object, T]) -> T:
    """Await `main`; SIGTERM cancels it as SIGINT does in asyncio.Runner."""
    import asyncio

    if threading.current_thread() is not threading.main_thread():
        return await main
    task = asyncio.current_task()
    assert task is not None
    terminated = False

    def terminate() -> None:
        nonlocal terminated
        terminated = True
        task.cancel()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, terminate)
    try:
        return await main
    except asyncio.CancelledError:
        if terminated:
            raise Terminated from None
        raise
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop factory, or None if uvloop is missing.

    Unlike a library, a program may choose its event loop.
    """
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
