"""`InputSet`: the inputs of a gateway. A reload opens, changes and closes them.

Tests: tests/fault/test_gateway_reload.py, tests/fault/test_gateway_units.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import logging
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

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

__all__ = ["InputSet"]

logger = logging.getLogger("aiokq.gateway")

DRAIN_SECONDS: Final = 2.0
"""Longest time for which an input that ends reads what the kernel holds."""

LEAST_DRAIN_MS: Final = 100
"""Shortest such time, even if no time is left: what the kernel holds is mostly read in less."""


class InputSet:
    """Opens sockets, and reads from them into a pool. Context: loop.

    Attributes:
        inputs: the inputs that are read, in the order of the configuration.
        unguarded_ends: number of TCP inputs that were closed without refusing connections first,
            because the system did not allow it.
    """

    def __init__(self) -> None:
        self._sockets: list[InputSocket] = []
        self._pool: Pool | None = None
        self._writer: SpoolWriter | None = None
        self._closed = dict.fromkeys(TRANSPORTS, InputTotals())
        self._ending: list[OpenInput] = []
        """Inputs that read what the kernel holds, and then stop."""
        self._end_by = math.inf
        """Time on the monotonic clock at which inputs stop to read, once a shutdown has begun."""
        self.inputs: tuple[OpenInput, ...] = ()
        self.unguarded_ends = 0

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

    async def hurry(self, seconds: float) -> None:
        """Let all inputs that a reload ends stop within `seconds`, and wait for those of now."""
        self._end_by = time.monotonic() + seconds
        await self._stopped(tuple(self._ending))

    async def drain(self, seconds: float) -> None:
        """End all inputs after they have read the data queued in the kernel, within `seconds`."""
        self._end_by = time.monotonic() + seconds
        await self._ended(self.inputs)

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
    ) -> list[OpenInput]:
        """Open the sockets of new inputs, and return the inputs. `replace` reads from them.

        Args:
            undo: gets a callback that closes the inputs again.

        Raises:
            ConfigError: a socket cannot be opened, or a limit or user is wrong.
        """
        _check([*changes.added, *(one.new for one in changes.changed)])
        opened: list[OpenInput] = []
        undo.push_async_callback(self._close_added, opened)
        for one in changes.added:
            socket = await open_input_soon(one)
            try:
                opened.append(self._input(socket))
            except BaseException:
                socket.close()
                raise
        return opened

    def change_sockets(self, changes: InputChanges, undo: contextlib.AsyncExitStack) -> None:
        """Apply the options of changed inputs to their sockets. Raises ConfigError."""
        for one in changes.changed:
            undo.callback(one.input.socket.change, one.old)
            one.input.socket.change(one.new)

    async def replace(
        self,
        changes: InputChanges,
        opened: list[OpenInput],
        undo: contextlib.AsyncExitStack,
    ) -> list[OpenInput]:
        """Read from added and changed inputs, and return them.

        Raises:
            OSError: there is no thread or descriptor for an input.
        """
        for added in opened:
            added.intake.start()
        new = list(opened)
        replaced: list[OpenInput] = []
        for one in changes.changed:
            undo.push_async_callback(self._read_as_before, one)
            if one.keeps_connections and one.input.counts().running:
                await _changed(one.input, one.new)
                new.append(one.input)
            else:
                replaced.append(one.input)
        await self._stopped(replaced)
        # The socket of a replaced input stays open, so the kernel queues data that is written
        # meanwhile.
        readers: list[OpenInput] = []
        undo.push_async_callback(self._close_readers, readers)
        for old in replaced:
            reader = self._input(old.socket)
            reader.intake.start()
            readers.append(reader)
        return [*new, *readers]

    async def settle(
        self,
        changes: InputChanges,
        opened: list[OpenInput],
        replaced: list[OpenInput],
        settings: Sequence[InputSettings],
    ) -> None:
        """Keep the changes of a reload, and stop the inputs that are no longer in the file."""
        self._sockets += [added.socket for added in opened]
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
        await self._ended(changes.removed)
        for each, counts in gone:  # the inputs have read messages since `counts`
            self._closed[each.type] = self._closed[each.type].plus(each.counts(), less=counts)
        for each in changes.removed:
            each.socket.close()
            self._sockets.remove(each.socket)

    # ------------------------------------------------------------ internal

    async def _close_added(self, opened: Sequence[OpenInput]) -> None:
        """Close new inputs after a reload that failed.

        First, what programs have written to them is read: they have got no error.
        """
        for added in opened:
            added.socket.remove_file()
            try:
                added.intake.start()
            except RuntimeError:  # the reload has started it already
                pass
            except OSError as error:
                logger.error("input was closed unread: input=%s error=%s", added.where, error)
        try:
            await self._ended(opened)
        finally:
            for added in opened:
                self._closed[added.type] = self._closed[added.type].plus(added.counts())
                added.socket.close()

    async def _close_readers(self, readers: Sequence[OpenInput]) -> None:
        """Stop the new readers of changed inputs after a reload that failed."""
        await self._stopped(readers)
        for reader in readers:
            self._keep_counts(reader)

    def _keep_counts(self, reader: OpenInput) -> None:
        """Keep the counts of a reader when another one replaces it."""
        self._closed[reader.type] = self._closed[reader.type].plus(reader.counts())
        reader.replaced(reader.counts())

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
        self._keep_counts(old)
        self.inputs = tuple(again if each is old else each for each in self.inputs)

    async def _stopped(self, inputs: Sequence[OpenInput]) -> None:
        """Stop inputs after they have read the data queued in the kernel.

        An input with `when_full = "block"` reads on only while there is room.
        """
        await self._end_together(_stop, inputs)

    async def _ended(self, inputs: Sequence[OpenInput]) -> None:
        """Stop inputs as `_stopped` does, and close their sockets.

        Otherwise programs could write what nobody reads and counts. The sockets of systemd stay
        open.
        """
        for each in inputs:
            try:
                each.socket.refuse_more()
            except OSError as error:
                if each.type != "tcp":
                    logger.warning(
                        "datagrams are not refused before an input is closed, and may be lost: "
                        "input=%s error=%s",
                        each.where,
                        error,
                    )
                    continue
                if not self.unguarded_ends:
                    logger.warning(
                        "connections are not refused before an input is closed, and what they send "
                        "may be lost: input=%s error=%s",
                        each.where,
                        error,
                    )
                self.unguarded_ends += 1
        await self._end_together(_end, inputs)

    async def _end_together(
        self, end: Callable[[float, OpenInput], None], inputs: Sequence[OpenInput]
    ) -> None:
        until = min(time.monotonic() + DRAIN_SECONDS, self._end_by)
        self._ending += inputs
        try:
            await _in_threads(functools.partial(end, until), inputs)
        finally:
            self._ending = [one for one in self._ending if one not in inputs]

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


async def _in_threads(call: Callable[[OpenInput], None], inputs: Sequence[OpenInput]) -> None:
    """Call a function for each input, at the same time."""
    if not inputs:
        return
    # Each call needs a thread, because stopping an input waits for the input's own thread, which
    # may wait for a second for room in the pool. The loop's executor is not used: it has few
    # threads, which may all wait for a disk or for the name of a host.
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


def _stop(until: float, one: OpenInput) -> None:
    rest_ms = int(1000 * (until - time.monotonic()))
    one.intake.stop(drain_ms=max(LEAST_DRAIN_MS, rest_ms))


def _end(until: float, one: OpenInput) -> None:
    _stop(until, one)
    one.socket.release()


def _check(inputs: Sequence[InputSettings]) -> None:
    for one in inputs:
        if one.type == "unix_datagram":
            check_datagram_limit(one)
        user_ids(one.allowed_users)
