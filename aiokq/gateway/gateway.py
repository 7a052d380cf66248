"""Gateway: receives messages from local programs and delivers them to Kafka.

The gateway owns its parts and passes messages between them: inputs fill the pool, the router finds
out which topics exist, the engine delivers, and the accounting counts. Tests:
tests/fault/test_gateway_points.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from aiokq.core.supervisor import Supervisor, shielded
from aiokq.errors import Closed, ConfigError, KafkaError, WrongLoop
from aiokq.fastpath.gateway import SHUTDOWN, Pool
from aiokq.gateway.accounting import Accounting, Snapshot
from aiokq.gateway.dead_letters import SHUTDOWN_SHARE
from aiokq.gateway.delivery import CHECK_SECONDS, Delivery, new_cluster
from aiokq.gateway.input_set import InputSet
from aiokq.gateway.refused import refused_options
from aiokq.gateway.reload import changes, input_changes, needs_other_engine
from aiokq.gateway.reports.reports import Reports
from aiokq.gateway.router import Router
from aiokq.gateway.settings import GatewaySettings

if TYPE_CHECKING:
    from aiokq import Cluster
    from aiokq.gateway.dead_letters import DeadLetters
    from aiokq.gateway.engine import Engine, TopicState
    from aiokq.gateway.http import Http
    from aiokq.gateway.inputs import InputTotals, OpenInput
    from aiokq.gateway.reload import InputChanges
    from aiokq.gateway.served import Problems
    from aiokq.gateway.spool.spool import Spool
    from aiokq.metrics import HasClientCounters

__all__ = ["Gateway"]

logger = logging.getLogger("aiokq.gateway")

CLOSE_SECONDS: Final = 5.0
"""Seconds that the tasks may take to end once they are cancelled."""

METADATA_SECONDS: Final = 10.0
TOPIC_SHARE: Final = 7
"""The messages of a topic that wait in the pool may use this many times as much as is free.

So a single topic that takes no messages leaves an eighth of the pool, and many together a part.
"""

INPUTS_SHARE: Final = 0.5
"""Largest part of the time of a shutdown in which the inputs are read to their end."""

CLOSING_SHARE: Final = 0.1
CLOSING_MOST: Final = 1.0
"""Part of the time of a shutdown, and its largest number of seconds, that is kept for what follows
the last delivery: a million messages are discarded and counted, or stay in the spool, and
connections and files are closed. CLOSING_MOST is also the least time for connections and files."""


class Gateway:
    """Receives messages of local programs on sockets, and delivers them to Kafka.

    ``async with Gateway("gateway.toml") as gateway:`` opens the inputs at once. Kafka need not be
    reachable: messages wait in the pool. At the end of the block, the inputs are read to their end
    and closed, and messages are delivered, all within `shutdown_max_delay_ms`. The remaining
    messages stay in the spool. Without a spool, they become dead letters, if the settings say so,
    or are discarded and counted.

    Args:
        config: settings, or the path of a TOML file.
        bootstrap_servers: replaces the servers of `config`.
        unix_datagram: path of a UNIX datagram socket to open, in addition to the inputs of
            `config`.
        unix_stream: path of a UNIX stream socket to open.
        tcp: port to open on 127.0.0.1; 0 for a free port.
        http: port of the HTTP interface; 0 for a free port. Without `http` and without [http] in
            `config`, there is no HTTP interface.
        spool: directory of the spool; replaces the directory of `config`.

    Raises:
        ConfigError: the file cannot be read, an option is wrong or contradicts another option, or
            there is no bootstrap address or no input.
    """

    def __init__(
        self,
        config: GatewaySettings | str | os.PathLike[str] | None = None,
        *,
        bootstrap_servers: str | Sequence[str] | None = None,
        unix_datagram: str | None = None,
        unix_stream: str | None = None,
        tcp: int | None = None,
        http: int | None = None,
        spool: str | None = None,
    ) -> None:
        self._arguments = {
            "bootstrap_servers": bootstrap_servers,
            "unix_datagram": unix_datagram,
            "unix_stream": unix_stream,
            "tcp": tcp,
            "http": http,
            "spool": spool,
        }
        self._path: Path | None = None
        if config is not None and not isinstance(config, GatewaySettings):
            self._path = Path(config)
        self.settings = self._with_arguments(
            config if isinstance(config, GatewaySettings) else self._loaded()
        )
        if not self.settings.kafka.get("bootstrap_servers"):
            raise ConfigError(
                "no cluster is named: set `bootstrap_servers` in [kafka], or give "
                "bootstrap_servers (--bootstrap-servers)"
            )
        if not self.settings.inputs:
            raise ConfigError(
                "the gateway has no input: add [[inputs]], or give a path or a port "
                "(--unix-datagram, --unix-stream, --tcp)"
            )
        self.started_at = 0.0
        self.reload_error: str | None = None
        self._supervisor = Supervisor("gateway", on_failure=self._failed)
        self._stack = contextlib.AsyncExitStack()
        self._ended: asyncio.Future[None] | None = None
        self._owner: tuple[int, asyncio.AbstractEventLoop] | None = None
        """The process and the loop that started the gateway."""
        self._opening: asyncio.Timeout | None = None
        """The start in progress; `close` ends it."""
        self._closed = False
        """Whether `close` was called."""
        self._closing = asyncio.Lock()
        """Held while parts are opened or closed."""
        self._timer: asyncio.TimerHandle | None = None
        self._flushing = False
        self._end_by = math.inf
        """Time on the loop's clock at which a shutdown has to end."""
        self._accepting = False
        self._reloading = asyncio.Lock()
        self._opening_more: asyncio.Timeout | None = None
        """The opening of inputs and HTTP by a reload in progress; `close` ends it."""
        self._inputs = InputSet()
        self._final: Snapshot | None = None
        self.http: Http | None = None
        self.spool: Spool | None = None

    # ------------------------------------------------------------ life cycle

    async def start(self) -> None:
        """Open the inputs and begin to deliver.

        Raises:
            ConfigError: an input, the spool or the HTTP port cannot be opened, or a limit cannot be
                kept.
            OSError: the process has no free descriptor.
            Closed: the gateway was started or closed already, or is closed during this call.
            WrongLoop: the gateway was started on another loop or in another process.
        """
        self._check_owner()
        if self._ended is not None or self._closed:
            raise Closed("this gateway was started or closed already: create a new one")
        loop = asyncio.get_running_loop()
        self._ended = loop.create_future()
        self._owner = os.getpid(), loop
        limit = self._opening = asyncio.timeout(None)
        try:
            async with self._closing:
                try:
                    async with limit:
                        await self._start(loop)
                except TimeoutError:
                    if not limit.expired():
                        raise
                finally:
                    self._opening = None
            if self._closed:
                raise Closed("this gateway was closed while it started: create a new one")
        except BaseException:
            await shielded(self._close(), name="close gateway")
            raise
        self.started_at = time.time()

    async def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        settings, stack = self.settings, self._stack
        stack.callback(self._inputs.close_sockets)
        self._inputs.open_sockets(settings.inputs)
        cluster = new_cluster(settings)
        stack.push_async_callback(self._close_cluster, cluster)
        await cluster.start()
        read_fd, wake_fd = _wake_pair()
        for descriptor in {read_fd, wake_fd}:
            stack.callback(os.close, descriptor)
        if settings.spool is not None:
            from aiokq.gateway.spool.spool import Spool

            self.spool = Spool(settings.spool)
            stack.push_async_callback(self.spool.close)
            # Shielded, so that `close` finds the files that the thread has opened.
            await shielded(self._open_spool(self.spool), name="open spool", expected=ConfigError)
        self.pool = Pool(
            settings.pool.max_bytes,
            wake_fd=wake_fd,
            topic_share=TOPIC_SHARE,
            sample_bytes=settings.discards.sample_bytes,
            spooled=self.spool is not None,
            **refused_options(settings),
        )
        stack.callback(self.pool.close)
        self._limit_refused(settings)
        # Parts are closed in the reverse order: tasks end before the pool that they use.
        stack.push_async_callback(self._supervisor.close, CLOSE_SECONDS)
        await self._supervisor.start()
        self.accounting = Accounting(self.pool, self.spool)
        self.delivery = Delivery(
            settings,
            self.accounting,
            cluster=cluster,
            spawn=self._spawn,
            guarded=partial(self._supervisor.guarded, name="engine"),
            on_room=self._feed,
            on_gone=self._topic_gone,
            on_switched=self._switched,
        )
        stack.push_async_callback(self.delivery.close)
        await self.engine.start()
        self.router = Router(
            cluster,
            self.pool,
            self.accounting,
            settings,
            max_message_bytes=self.engine.max_message_bytes,
            spawn=self._spawn,
            on_topic=self._feed,
        )
        self.reports = Reports(self)
        stack.push_async_callback(self._close_reports_and_http)
        self.router.start()
        loop.add_reader(read_fd, self._supervisor.guarded(self._woken, name="wake"), read_fd)
        stack.callback(loop.remove_reader, read_fd)
        if self.spool is not None:
            self.spool.start(self.pool, partial(self._supervisor.guarded, name="spool"))
            await self.spool.delete_finished()
            if settings.spool is not None and settings.spool.fsync == "interval":
                self._spawn(self.spool.sync_forever(), "sync of the spool")
        self.http = await self._open_http(settings)
        # The inputs are read last, because a start that fails could lose the data that they have
        # read. Unread data of a socket that systemd passed in is kept for the next start.
        stack.callback(self._inputs.stop)
        try:
            self._inputs.read(self.pool, None if self.spool is None else self.spool.writer)
        except OSError as error:
            raise ConfigError(
                f"an input cannot be read: {error.strerror or error}: raise the limits of threads "
                "and descriptors of the process"
            ) from error
        self._accepting = True
        self.reports.start()

    async def close(self) -> Snapshot:
        """Read the inputs to their end, close them, and deliver the received messages.

        All of this takes at most `shutdown_max_delay_ms`, and two seconds more if connections or
        log files do not end. Messages that are not delivered by then stay in the spool. Without a
        spool they are discarded, or written as dead letters. May be called twice and concurrently.
        A `start` in progress is ended, and raises Closed.

        Returns:
            The final counts of the gateway.

        Raises:
            WrongLoop: the gateway was started on another loop or in another process, such as the
                parent of a forked child. Nothing is closed.
        """
        self._check_owner()
        self._closed = True
        if self._opening is not None:
            self._opening.reschedule(asyncio.get_running_loop().time())
            self._opening = None
        await shielded(self._close(), name="close gateway")
        assert self._final is not None
        return self._final

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # A forked child closes nothing, because everything belongs to the parent.
        if self._owner is None or self._owner[0] == os.getpid():
            await self.close()

    async def run_until(self, stop: asyncio.Event) -> None:
        """Wait for `stop` or the end of the gateway; raise Closed if a part of it fails first.

        Raises:
            Closed: a part of the gateway has failed, and its error is the cause; or the gateway is
                not started, or is closed.
            WrongLoop: the gateway was started on another loop or in another process.
        """
        self._check_started()
        if self._ended is None or self._final is not None:
            raise Closed("this gateway is closed: create a new one")
        waiting: asyncio.Future[Any] = self._supervisor.spawn(stop.wait(), name="stop")
        await asyncio.wait([waiting, self._ended], return_when=asyncio.FIRST_COMPLETED)
        if self._ended.done():
            self._ended.result()

    @property
    def cluster(self) -> Cluster:
        """The cluster that gets the messages; a reload may replace it."""
        return self.delivery.cluster

    @property
    def clients(self) -> Sequence[HasClientCounters]:
        """The cluster and the clients before it, whose counters `/metrics` has."""
        return self.delivery.clients

    @property
    def engine(self) -> Engine:
        """The engine that delivers the messages; a reload may replace it."""
        return self.delivery.engine

    @property
    def dead_letters(self) -> DeadLetters:
        """The writer of dead letters; a reload may replace it."""
        return self.delivery.dead_letters

    @property
    def inputs(self) -> tuple[OpenInput, ...]:
        """The inputs, in the order of the configuration."""
        return self._inputs.inputs

    def input_totals(self) -> Mapping[str, InputTotals]:
        """Return the counts of inputs by transport, with those of closed inputs. Context: loop."""
        return self._inputs.totals()

    @property
    def unguarded_ends(self) -> int:
        """Number of TCP inputs that were closed without refusing connections first."""
        return self._inputs.unguarded_ends

    @property
    def accepting(self) -> bool:
        """Whether the inputs are open."""
        return self._accepting

    @property
    def failed(self) -> BaseException | None:
        """The error with which a part of the gateway failed; None if none did."""
        return self._supervisor.failed

    def snapshot(self) -> Snapshot:
        """Return the current counts; after `close`, the final counts. Context: loop.

        Before `start`, all counts are 0.

        Raises:
            WrongLoop: the gateway is open, and belongs to another loop or process.
        """
        if self._final is not None:
            return self._final
        self._check_owner()
        if not hasattr(self, "accounting"):  # the gateway was not started
            return Accounting(Pool(1)).snapshot()
        return self.accounting.snapshot()

    async def reload(self) -> list[str]:
        """Read the configuration file again, and apply its options.

        Inputs are opened, changed and closed; a closed input is read to its end. If the brokers or
        the engine change, new messages wait in the pool until the messages in flight are delivered,
        so that the order is kept.

        Returns:
            The names of the tables and options that have changed.

        Raises:
            ConfigError: the gateway is not started, is closing or has failed; it has no file, the
                file is wrong, a table has changed that needs a restart, an input or the HTTP port
                cannot be opened, or the messages in flight were not delivered within
                `shutdown_max_delay_ms`. Nothing is changed then, with one exception: if the system
                has no thread or descriptor for an input after the engine was replaced, the new
                engine stays, with [kafka] and [delivery] of the file.
            WrongLoop: the gateway was started on another loop or in another process.

        A cancelled call raises CancelledError only when the change is complete.
        """
        self._check_owner()
        return await shielded(self._reload(), name="reload gateway", expected=ConfigError)

    async def _reload(self) -> list[str]:
        async with self._reloading:
            try:
                if self._path is None:
                    raise ConfigError("this gateway was started without a configuration file")
                settings = self._with_arguments(self._loaded())
                changed = changes(self.settings, settings)
                if not self._accepting:
                    raise ConfigError("the gateway is not started, or is shutting down")
                if self.failed is not None:
                    raise ConfigError(f"the gateway has failed: {self.failed!r}")
                await self._change_or_refuse(settings)
            except ConfigError as error:
                self.reload_error = error.message
                logger.error("configuration was not reloaded: %s", error.message)
                raise
            self.reload_error = None
            logger.info("configuration was reloaded: changed=%s", ",".join(changed) or "nothing")
            return changed

    def reload_soon(self) -> None:
        """Begin to reload, for a signal handler; log and report an error. Context: loop."""
        try:
            self._spawn(self._reload_logged(), "reload")
        except Closed as error:
            logger.error("configuration was not reloaded: %s", error.message)

    async def _reload_logged(self) -> None:
        with contextlib.suppress(ConfigError):  # reload() has logged it, and the reports show it
            await self.reload()

    async def _change_or_refuse(self, settings: GatewaySettings) -> None:
        try:
            await self._change(settings)
        except OSError as error:  # such as too many open files
            raise ConfigError(f"the system refuses it: {error.strerror or error}") from error

    async def _change(self, settings: GatewaySettings) -> None:
        """Apply other settings. A failure undoes all steps but the replacement of the engine."""
        old = self.settings
        inputs = self._inputs
        differ = input_changes(inputs.inputs, settings.inputs)
        async with contextlib.AsyncExitStack() as undo:
            opened, http = await self._open_more(differ, settings, undo)
            if http is not None and settings.http is not None:
                if http is self.http and old.http is not None:
                    undo.callback(http.change, old.http)
                http.change(settings.http)
            inputs.change_sockets(differ, undo)
            if needs_other_engine(old, settings, self.delivery.largest):
                await self.delivery.switch(old, settings, lambda: self._accepting)
                # The new engine keeps these tables even if an input fails below. The next reload
                # compares its file with the settings in use.
                used = {"kafka": settings.kafka, "delivery": settings.delivery}
                self.settings = old.model_copy(update=used)
            replaced = await inputs.replace(differ, opened, undo)
            undo.pop_all()
        self.settings = settings
        if self.http is not None and self.http is not http:
            self._spawn(self.http.close(), "close http")
        self.http = http
        self.delivery.configure(settings)
        self._limit_refused(settings)
        self.router.configure(settings, self.engine.max_message_bytes)
        await inputs.settle(differ, opened, replaced, settings.inputs)

    async def _open_more(
        self, differ: InputChanges, settings: GatewaySettings, undo: contextlib.AsyncExitStack
    ) -> tuple[list[OpenInput], Http | None]:
        """Open the sockets of new inputs, and the HTTP interface of other settings.

        A locked directory, or the name of a host, may delay it; `close` does not wait for it.

        Raises:
            ConfigError: a socket cannot be opened, or the gateway is closed meanwhile.
        """
        limit = self._opening_more = asyncio.timeout(None)
        http = self.http
        try:
            async with limit:
                opened = await self._inputs.open_added(differ, undo)
                if settings.http != self.settings.http:
                    http = await self._exchange_http(settings, undo)
        except TimeoutError:
            if not limit.expired():
                raise
            raise ConfigError("the gateway is shutting down; nothing was changed") from None
        finally:
            self._opening_more = None
        return opened, http

    def _limit_refused(self, settings: GatewaySettings) -> None:
        """Set how many messages refused by the pool may become dead letters per second."""
        letters = settings.dead_letters
        self.pool.limit_whole(0 if letters is None else letters.max_per_s)

    def _switched(self) -> None:
        """Use the cluster and engine of `delivery`, and pass messages to the engine."""
        self.router.use(self.cluster, self.engine.max_message_bytes)
        self.reports.switched()
        for topic in list(self.router.topics.values()):
            self._feed(topic)

    def problems(self) -> Problems:
        """Return the reasons why no messages are accepted, and the warnings. Context: loop."""
        self._check_started()
        return self.reports.problems()

    def measures(
        self, snapshot: Snapshot
    ) -> Iterable[tuple[str, Iterable[tuple[tuple[str, ...], float]]]]:
        """Return the metrics of the reports. Context: loop.

        Args:
            snapshot: taken in the current iteration of the event loop.
        """
        self._check_started()
        return self.reports.measures(snapshot)

    def update_metadata(self) -> None:
        """Begin to request new metadata. Context: loop."""
        self._check_started()
        self._spawn(self._update_metadata(), "metadata update")

    # ------------------------------------------------------------ parts

    def _check_owner(self) -> None:
        """Raise WrongLoop on a loop or in a process other than those of `start`."""
        if self._owner is None:
            return
        pid, loop = self._owner
        if os.getpid() != pid:
            raise WrongLoop(
                f"this gateway was started in process {pid} and does not survive a fork: create a "
                f"new one in process {os.getpid()}"
            )
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is not loop:
            where = "outside any event loop" if running is None else "on another event loop"
            raise WrongLoop(
                "this gateway belongs to the event loop on which it was started, and was used "
                f"{where}: make the call by asyncio.run_coroutine_threadsafe"
            )

    def _check_started(self) -> None:
        """Call `_check_owner`; raise Closed before `start`."""
        self._check_owner()
        if not hasattr(self, "reports"):
            raise Closed("this gateway is not started: use `async with`, or await start()")

    @staticmethod
    async def _open_spool(spool: Spool) -> None:
        await asyncio.get_running_loop().run_in_executor(None, spool.open)

    async def _update_metadata(self) -> None:
        try:
            await self.cluster.refresh(timeout=METADATA_SECONDS)
        except KafkaError as error:
            logger.warning("metadata was not updated: error=%s", error)

    def _loaded(self) -> GatewaySettings | None:
        return None if self._path is None else GatewaySettings.load(self._path)

    def _with_arguments(self, settings: GatewaySettings | None) -> GatewaySettings:
        given = {name: value for name, value in self._arguments.items() if value is not None}
        if settings is not None and not given:
            return settings
        return GatewaySettings.of(settings, **given)  # type: ignore[arg-type]

    async def _open_http(self, settings: GatewaySettings) -> Http | None:
        """Open the HTTP interface of the settings, unless it is open at this address already."""
        chosen = settings.http
        if chosen is None:
            return None
        from aiokq.gateway.http import Http
        from aiokq.gateway.reports.routes import Routes

        http = Http(self, chosen, self.reports.http, self._spawn)
        Routes(self, self.reports, http.add)
        if self.http is not None and self.http.address == (chosen.host, chosen.port):
            return self.http
        await http.start()
        return http

    async def _exchange_http(
        self, settings: GatewaySettings, undo: contextlib.AsyncExitStack
    ) -> Http | None:
        """Open the HTTP interface of a reloaded file.

        Args:
            undo: gets callbacks that close the new interface, and let the present interface listen
                again.
        """
        used, chosen = self.http, settings.http
        if (
            used is not None
            and chosen is not None
            and used.port == chosen.port
            and used.address != (chosen.host, chosen.port)
        ):
            # The same port on another host: the system may refuse it while both listen.
            undo.push_async_callback(used.listen_again)
            used.stop_listening()
        http = await self._open_http(settings)
        if http is not None and http is not used:
            undo.push_async_callback(http.close)
        return http

    async def _close_reports_and_http(self) -> None:
        seconds = self._end_by - asyncio.get_running_loop().time()
        closing = [self.reports.close(seconds)]
        if self.http is not None:
            closing.append(self.http.close(seconds))
        await asyncio.gather(*closing)

    async def _close_cluster(self, first: Cluster) -> None:
        # A reload may have replaced the cluster.
        await (self.delivery.cluster if hasattr(self, "delivery") else first).close()

    def _spawn(self, coro: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        return self._supervisor.spawn(coro, name=name)

    def _failed(self, error: BaseException) -> None:
        if self._ended is not None and not self._ended.done():
            failure = Closed(f"the gateway has failed: {error!r}")
            failure.__cause__ = error
            self._ended.set_exception(failure)
            self._ended.exception()  # no "never retrieved" warning: run_until() raises it

    # ------------------------------------------------------------ messages

    def _woken(self, read_fd: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(read_fd, 4096)
        self._pump()

    # hot: once per wake-up of the loop
    def _pump(self) -> None:
        """Give the engine the batches that are due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        ready, delay_ms = self.pool.due()
        # `drain` empties the pool's queue of refused messages. It is called after `due`, because
        # the pool writes to `wake_fd` again if it refuses a message after `due`.
        self.accounting.drain()
        topics = self.router.topics
        for slot in ready:
            topic = topics.get(slot)
            if topic is not None:
                self._feed(topic)
        self.router.notice()
        if self.spool is not None:
            self.spool.note_discards()
            self.spool.released()
        if delay_ms is not None:
            loop = asyncio.get_running_loop()
            pump = self._supervisor.guarded(self._pump, name="pump")
            self._timer = loop.call_later(max(delay_ms, 0) / 1000, pump)

    def _feed(self, topic: TopicState) -> None:
        """Pass due messages of a topic to the engine while the engine has room."""
        engine, pool = self.engine, self.pool
        while not topic.gone and not self.delivery.switching:
            room = engine.room(topic)
            if not room:
                return
            taken = pool.take(topic.slot, flush=self._flushing, max_bytes=room)
            if taken is None:
                return
            self.router.update(topic)
            if topic.trace is not None:
                topic.trace.received(topic.name, taken, range(taken.count))
            engine.accept(topic, taken)

    def _topic_gone(self, topic: TopicState) -> None:
        self.router.gone(topic)

    # ------------------------------------------------------------ shutdown

    async def _close(self) -> None:
        async with self._closing:
            if self._final is None:
                await (self._end() if self._accepting else self._abandon())

    async def _end(self) -> None:
        loop = asyncio.get_running_loop()
        seconds = self.settings.delivery.shutdown_max_delay_ms / 1000
        self._end_by = loop.time() + seconds
        deadline = self._end_by - min(CLOSING_SHARE * seconds, CLOSING_MOST)
        try:
            self._accepting = False
            if self._opening_more is not None:
                self._opening_more.reschedule(loop.time())
                self._opening_more = None
            self._inputs.remove_files()
            self._flushing = True
            # A reload in progress ends first; the inputs that it ends have no more time.
            await self._inputs.hurry(INPUTS_SHARE * (deadline - loop.time()))
            async with self._reloading:
                await self._inputs.drain(INPUTS_SHARE * (deadline - loop.time()))
            kept = 0.0
            if self.dead_letters.wants_shutdown:
                kept = SHUTDOWN_SHARE * (deadline - loop.time())
            await self._drain(deadline - kept)
            await self._discard_rest(deadline)
        finally:
            await self._close_parts()

    async def _drain(self, deadline: float) -> None:
        """Deliver messages until none is left, the time is up, or a part has failed."""
        loop = asyncio.get_running_loop()
        while self.failed is None and self._remaining() and loop.time() < deadline:
            self._pump()
            for topic in list(self.router.topics.values()):
                self._feed(topic)
            drained = self._supervisor.spawn(self.engine.drain(), name="drain")
            await asyncio.wait([drained], timeout=min(0.5, max(0.0, deadline - loop.time())))
            drained.cancel()
            if self._remaining():
                await asyncio.sleep(CHECK_SECONDS)

    def _remaining(self) -> bool:
        """Return whether any message has no outcome."""
        waiting = 0 if self.spool is None else self.spool.waiting
        return bool(self.pool.counts().held or waiting)

    async def _discard_rest(self, deadline: float) -> None:
        """Leave messages without an outcome in the spool.

        Without a spool, discard them with reason shutdown, or write them as dead letters if the
        settings say so.
        """
        if self.spool is not None:
            await self.engine.close()
            self.accounting.keeps = True
            await self.dead_letters.close(deadline, self._end_by)
            kept = self.accounting.in_all().in_flight
            if kept:
                logger.warning("messages stay in the spool: %s", kept)
            return
        self.router.discard_missing()
        for topic in list(self.router.topics.values()):
            while (taken := self.pool.take(topic.slot, flush=True)) is not None:
                rows = range(taken.count)
                self.accounting.discarded(topic, taken, rows, SHUTDOWN, taken.charge)
        await self.engine.close()
        await self.dead_letters.close(deadline, self._end_by)
        lost = self.accounting.in_all()
        if lost.discarded[SHUTDOWN]:
            logger.error("messages were discarded at shutdown: %s", lost.discarded[SHUTDOWN])

    async def _abandon(self) -> None:
        """Close the parts that a start has opened which failed or was ended.

        Messages that the inputs have read are discarded, unless a spool keeps them.
        """
        try:
            if self._inputs.inputs:
                self._inputs.stop()
                await self._discard_rest(asyncio.get_running_loop().time())
        finally:
            await self._close_parts()

    async def _close_parts(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # Also after a shutdown that had less time, or none.
        self._end_by = max(self._end_by, asyncio.get_running_loop().time() + CLOSING_MOST)
        try:
            self._final = self.snapshot()
        finally:
            await self._stack.aclose()
            if self._ended is not None and not self._ended.done():
                self._ended.set_result(None)


def _wake_pair() -> tuple[int, int]:
    """Return the descriptors to read and to write: an eventfd twice, or the ends of a pipe."""
    if hasattr(os, "eventfd"):
        descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        return descriptor, descriptor
    read_fd, write_fd = os.pipe()
    os.set_blocking(read_fd, False)
    os.set_blocking(write_fd, False)
    return read_fd, write_fd
