"""`InputSet`: the inputs of a gateway. A reload opens, changes and closes them.

Tests: tests/fault/test_gateway_reload.py, tests/fault/test_gateway_units.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from aiokq.fastpath.gateway import TRANSPORTS, Intake
from aiokq.gateway.inputs import (
    InputSocket,
    InputTotals,
    OpenInput,
    adopt_passed,
    check_datagram_limit,
    open_input,
    open_input_soon,
    user_ids,
)

if TYPE_CHECKING:
    from aiokq.fastpath.gateway import Pool, SpoolWriter
    from aiokq.gateway.reload import InputChange, InputChanges
    from aiokq.gateway.settings_tables import InputSettings

__all__ = ["InputSet", "stopped"]

logger = logging.getLogger("aiokq.gateway")


class InputSet:
    """Opens sockets, and reads from them into a pool. Context: loop.

    Attributes:
        inputs: the inputs that are read, in the order of the configuration.
    """

    def __init__(self) -> None:
        self._sockets: list[InputSocket] = []
        self._pool: Pool | None = None
        self._writer: SpoolWriter | None = None
        self._closed = dict.fromkeys(TRANSPORTS, InputTotals())
        self.inputs: tuple[OpenInput, ...] = ()

    def totals(self) -> dict[str, InputTotals]:
        """Return the counts by transport, with those of closed inputs."""
        totals = dict(self._closed)
        for each in self.inputs:
            totals[each.type] = totals[each.type].plus(each.counts())
        return totals

    # ------------------------------------------------------------ start and end

    def open_sockets(self, inputs: Sequence[InputSettings]) -> None:
        """Open the sockets of all inputs; `close_sockets` closes them, also after an error.

        Raises:
            ConfigError: a socket cannot be opened, or a limit cannot be kept.
        """
        _check(inputs)
        passed = adopt_passed(inputs)
        self._sockets = list(passed.values())
        for index, one in enumerate(inputs):
            if index not in passed:
                passed[index] = open_input(one)
                self._sockets.append(passed[index])
        self._sockets = [passed[index] for index in range(len(inputs))]

    def read(self, pool: Pool, writer: SpoolWriter | None) -> None:
        """Begin to read from the sockets.

        Args:
            writer: the writer of the spool; None without a spool.

        Raises:
            OSError: there is no thread or descriptor for an input.
        """
        self._pool, self._writer = pool, writer
        for socket in self._sockets:
            started = self._input(socket)
            started.intake.start()
            self.inputs = (*self.inputs, started)

    def remove_files(self) -> None:
        """Remove the socket files that systemd does not own, so that no more programs use them."""
        for each in self.inputs:
            each.socket.remove_file()

    async def drain(self) -> None:
        """End all inputs after they have read the data queued in the kernel; see `ended`."""
        await ended(self.inputs)

    def stop(self) -> None:
        """Stop all inputs at once."""
        for each in self.inputs:
            each.intake.stop()

    def close_sockets(self) -> None:
        """Close the sockets, and remove their files."""
        for socket in self._sockets:
            socket.close()

    # ------------------------------------------------------------ reload

    async def open_added(
        self, changes: InputChanges, undo: contextlib.AsyncExitStack
    ) -> list[InputSocket]:
        """Open the sockets of new inputs.

        Args:
            undo: gets callbacks that close the sockets again.

        Raises:
            ConfigError: a socket cannot be opened, or a limit or user is wrong.
        """
        _check([*changes.added, *(one.new for one in changes.changed)])
        opened = []
        for one in changes.added:
            opened.append(await open_input_soon(one))
            undo.callback(opened[-1].close)
        return opened

    def change_sockets(self, changes: InputChanges, undo: contextlib.AsyncExitStack) -> None:
        """Apply the options of changed inputs to their sockets. Raises ConfigError."""
        for one in changes.changed:
            undo.callback(one.input.socket.change, one.old)
            one.input.socket.change(one.new)

    async def replace(
        self,
        changes: InputChanges,
        opened: list[InputSocket],
        undo: contextlib.AsyncExitStack,
    ) -> list[OpenInput]:
        """Read from added and changed inputs, and return them.

        Raises:
            OSError: there is no thread or descriptor for an input.
        """
        new = [self._started(socket, undo) for socket in opened]
        replaced = []
        for one in changes.changed:
            undo.push_async_callback(self._read_as_before, one)
            if one.keeps_connections and one.input.counts().running:
                await _changed(one.input, one.new)
                new.append(one.input)
            else:
                replaced.append(one.input)
        await stopped(replaced)
        # The socket of a replaced input stays open, so the kernel queues data that is written
        # meanwhile.
        return new + [self._started(old.socket, undo) for old in replaced]

    async def settle(
        self,
        changes: InputChanges,
        opened: list[InputSocket],
        replaced: list[OpenInput],
        settings: Sequence[InputSettings],
    ) -> None:
        """Keep the changes of a reload, and stop the inputs that are no longer in the file."""
        self._sockets += opened
        order: list[tuple[str, str]] = [(one.type, one.where) for one in settings]
        keeps = (*changes.kept, *replaced)
        gone = [(each, each.counts()) for each in self.inputs if each not in keeps]
        for each, counts in gone:
            self._closed[each.type] = self._closed[each.type].plus(counts)
            each.replaced(counts)
        self.inputs = tuple(
            sorted(
                keeps,
                key=lambda each: order.index((each.type, each.socket.settings.where)),
            )
        )
        for each in changes.removed:
            each.socket.remove_file()
        await ended(changes.removed)
        for each, counts in gone:  # the inputs have read messages since `counts`
            self._closed[each.type] = self._closed[each.type].plus(each.counts(), less=counts)
        for each in changes.removed:
            each.socket.close()
            self._sockets.remove(each.socket)

    # ------------------------------------------------------------ internal

    def _started(self, socket: InputSocket, undo: contextlib.AsyncExitStack) -> OpenInput:
        started = self._input(socket)
        started.intake.start()
        undo.push_async_callback(stopped, (started,))
        return started

    async def _read_as_before(self, change: InputChange) -> None:
        """Read from an input with its old options after a reload that failed."""
        old = change.input
        try:
            if old.counts().running:
                await _changed(old, change.old)
                return
            again = self._input(old.socket, change.old)
            again.intake.start()
        except OSError as error:  # /readyz reports the input as stopped
            logger.error("input cannot be read: input=%s error=%s", old.where, error)
            return
        self._closed[old.type] = self._closed[old.type].plus(old.counts())
        old.replaced(old.counts())
        self.inputs = tuple(again if each is old else each for each in self.inputs)

    def _input(self, socket: InputSocket, settings: InputSettings | None = None) -> OpenInput:
        assert self._pool is not None
        one = settings or socket.settings
        intake = Intake(
            self._pool,
            socket.socket.fileno(),
            one.type,
            allowed_uids=user_ids(one.allowed_users),
            spool=self._writer,
            **_options(one),
        )
        return OpenInput(socket, intake)


def _options(one: InputSettings) -> dict[str, Any]:
    """Return the options of an Intake that can change while it runs."""
    options: dict[str, Any] = {"max_message_bytes": one.limit, "when_full": one.when_full}
    if one.type != "unix_datagram":
        options |= {
            "max_connections": one.max_connections,
            "idle_ms": one.idle_ms,
            "partial_ms": one.partial_message_ms,
            "idle_when_full_ms": one.idle_when_full_ms,
        }
    return options


async def _changed(one: OpenInput, settings: InputSettings) -> None:
    """Give an open input other options. Raises OSError; see `Intake.change`."""
    change = functools.partial(one.intake.change, **_options(settings))
    try:
        # In a thread, because it waits for the input's own thread.
        await asyncio.get_running_loop().run_in_executor(None, change)
    except RuntimeError as error:
        raise OSError(errno.EBADF, f"input {one.where} is stopped") from error


async def stopped(inputs: Sequence[OpenInput]) -> None:
    """Give inputs about a second to read the data queued in the kernel, and stop them.

    An input with `when_full = "block"` reads on only while there is room.
    """
    await _in_threads(_stop, inputs)


async def ended(inputs: Sequence[OpenInput]) -> None:
    """Stop inputs as `stopped` does, and close their sockets.

    Otherwise programs could write what nobody reads and counts. The sockets of systemd stay open.
    """
    for each in inputs:
        each.socket.refuse_more()
    await _in_threads(_end, inputs)


async def _in_threads(call: Callable[[OpenInput], None], inputs: Sequence[OpenInput]) -> None:
    """Call a function for each input, at the same time."""
    if not inputs:
        return
    # In threads, because stopping an input waits for the input's own thread, which may wait for a
    # second for room in the pool. The threads of the loop's executor are few, and may all wait for
    # a disk or for the name of a host.
    loop = asyncio.get_running_loop()
    executor = ThreadPoolExecutor(len(inputs), thread_name_prefix="aiokq-gateway-stop")
    stops = []
    try:
        for each in inputs:
            try:
                stops.append(loop.run_in_executor(executor, call, each))
            except RuntimeError:  # the system has no thread
                call(each)
        if stops:
            await asyncio.wait(stops)
    finally:
        executor.shutdown(wait=False)
    for one in stops:
        one.result()


def _stop(one: OpenInput) -> None:
    one.intake.stop(drain=True)


def _end(one: OpenInput) -> None:
    one.intake.stop(drain=True)
    one.socket.release()


def _check(inputs: Sequence[InputSettings]) -> None:
    for one in inputs:
        if one.type == "unix_datagram":
            check_datagram_limit(one)
        user_ids(one.allowed_users)
