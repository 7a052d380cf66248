"""`MetadataSource`, which requests metadata from known brokers or bootstrap addresses."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from aiokq.cluster.addresses import BootstrapAddress
from aiokq.cluster.first_answer import Attempt, NoAnswer, first_answer
from aiokq.cluster.metadata_messages import metadata_received, metadata_request
from aiokq.cluster.metadata_refresh import MetadataAsk
from aiokq.cluster.reducer_inputs import MetadataReceived
from aiokq.connection.node import Node, Purpose
from aiokq.core.error_base import KafkaError, copy_error
from aiokq.core.errors import AuthenticationFailed, BootstrapFailed, ConfigError, ConnectionLost
from aiokq.wire.metadata import MetadataRequest

if TYPE_CHECKING:
    from aiokq.cluster.engine import ClusterEngine

__all__ = ["MetadataSource", "ask_node"]

SEED_STAGGER: Final = 0.25
"""Seconds to wait for a bootstrap address before the next address is tried as well.

RFC 8305 recommends this delay between connection attempts.
"""

NODE_STAGGER: Final = 1.0
"""Seconds to wait for a known broker before the next broker is asked as well.

The wait is longer than `SEED_STAGGER`, because a known broker may just be busy.
"""

REBOOTSTRAP_REQUIRED: Final = 129


async def ask_node(node: Node, ask: MetadataAsk, *, timeout: float) -> MetadataReceived:
    """Send one Metadata request to a node and return the response.

    Raises:
        KafkaError: the connection failed, no response arrived within ``timeout`` seconds, or the
            broker refused the request.
        ConnectionLost: the response names no broker, because the node is still starting.
    """
    connection = await node.connection(Purpose.CONTROL)
    await node.ready()
    version = connection.version_for(MetadataRequest)
    request = metadata_request(ask.topics, create=ask.create, version=version)
    response = await connection.request(request, timeout=timeout)
    received = metadata_received(response, complete=ask.topics is None)
    if not received.brokers:
        raise ConnectionLost(
            "the broker lists no brokers yet, because it is starting", node=node.name
        )
    return received


class MetadataSource:
    """Requests metadata from known brokers and bootstrap addresses.

    Attributes:
        failures: the last error of each bootstrap address, by "host:port".
    """

    def __init__(self, engine: ClusterEngine, *, last_success: Callable[[], float | None]) -> None:
        self._engine = engine
        self._last_success = last_success
        self._start_over = False
        self.failures: dict[str, KafkaError] = {}

    async def first(self, answered: Awaitable[None], timeout: float) -> None:
        """Wait until ``answered`` completes with the first metadata.

        Raises:
            BootstrapFailed: no address answered within ``timeout`` seconds, every address failed
                with an error that a retry cannot solve, or a broker refused the credentials.
        """
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                await answered
        except TimeoutError:
            if not limit.expired():
                raise
            failed = self.bootstrap_failed(timeout)
            raise failed from failed.__cause__
        except AuthenticationFailed as error:
            raise self.bootstrap_failed(timeout) from error

    async def ask(self, ask: MetadataAsk) -> MetadataReceived:
        """Ask the known brokers, then the bootstrap addresses.

        The known brokers are skipped if the client has to rebootstrap (KIP-1102). With
        ``metadata_recovery_strategy`` "none", the bootstrap addresses are asked only while no
        broker is known. If no broker is known, and no address can be expected to answer, waiters
        for metadata fail immediately with BootstrapFailed.

        Raises:
            AuthenticationFailed: a broker refused the credentials.
            NoAnswer: no node answered.
        """
        try:
            return await self._ask(ask)
        except KafkaError:
            if not self._engine.metadata.brokers and self.hopeless:
                self._engine.refresher.fail_waiters(self.bootstrap_failed(0.0))
            raise

    async def _ask(self, ask: MetadataAsk) -> MetadataReceived:
        engine = self._engine
        failures: dict[str, KafkaError] = {}
        if engine.metadata.brokers and not self._overdue():
            nodes = engine.nodes.by_preference(engine.metadata.brokers.values(), engine.state.down)
            try:
                return await self._race(nodes, ask, NODE_STAGGER)
            except NoAnswer as error:
                failures = error.failures
                self._note_refusal(failures)
                if engine.settings.metadata_recovery_strategy == "none":
                    raise
        seeds = engine.nodes.seeds(engine.settings.bootstrap_addresses)
        try:
            received = await self._race(
                seeds, ask, SEED_STAGGER, on_failure=self.failures.__setitem__
            )
        except NoAnswer as error:
            self._note_refusal(error.failures)
            raise NoAnswer({**failures, **error.failures}) from None
        self._start_over = False
        self.failures.clear()
        engine.spawn(engine.nodes.close_seeds(), "close bootstrap connections")
        return received

    async def _race(
        self,
        nodes: list[Node],
        ask: MetadataAsk,
        stagger: float,
        *,
        on_failure: Callable[[str, KafkaError], None] | None = None,
    ) -> MetadataReceived:
        timeout = self._engine.settings.request_timeout
        attempts = [
            Attempt(
                str(BootstrapAddress(node.host, node.port)),
                partial(ask_node, node, ask, timeout=timeout),
            )
            for node in nodes
        ]
        return await first_answer(
            self._engine.supervisor, attempts, stagger=stagger, on_failure=on_failure
        )

    def _overdue(self) -> bool:
        """Whether to skip the known brokers, and ask the bootstrap addresses (KIP-1102).

        True if a broker returned REBOOTSTRAP_REQUIRED, or if the latest response is older than
        ``metadata_max_age_ms`` plus ``metadata_recovery_rebootstrap_trigger_ms``. Always False with
        ``metadata_recovery_strategy`` "none".
        """
        settings = self._engine.settings
        if settings.metadata_recovery_strategy == "none":
            return False
        if self._start_over:
            return True
        last = self._last_success()
        limit = settings.metadata_recovery_rebootstrap_trigger_ms / 1000
        waited = None if last is None else self._engine.now() - last
        # `limit` counts from the age at which the metadata is due for a refresh.
        age = settings.metadata_max_age_ms / 1000
        return waited is not None and waited > age + limit

    def _note_refusal(self, failures: dict[str, KafkaError]) -> None:
        for error in failures.values():
            if getattr(error, "code", 0) == REBOOTSTRAP_REQUIRED:
                self._start_over = True
            if isinstance(error, AuthenticationFailed):
                raise copy_error(error) from error

    @property
    def hopeless(self) -> bool:
        """Whether every bootstrap address has failed with an error that a retry cannot solve."""
        addresses = {str(address) for address in self._engine.settings.bootstrap_addresses}
        return addresses <= self.failures.keys() and all(
            not error.retriable or _unknown_host(error) for error in self.failures.values()
        )

    def bootstrap_failed(self, waited: float) -> BootstrapFailed:
        """Return an error that names each address with its failure.

        The cause is the first `AuthenticationFailed` if there is any, otherwise the first failure.

        Args:
            waited: seconds waited for addresses that have not failed.
        """
        silent = f"no answer within {waited:.3g} s"
        attempts = []
        for address in map(str, self._engine.settings.bootstrap_addresses):
            error = self.failures.get(address)
            attempts.append((address, silent if error is None else error.message))
        failed = BootstrapFailed(attempts)
        refusals = (e for e in self.failures.values() if isinstance(e, AuthenticationFailed))
        failed.__cause__ = next(refusals, next(iter(self.failures.values()), None))
        return failed


def check_bootstrap_servers(addresses: tuple[object, ...]) -> None:
    """Raise ConfigError if no address is given."""
    if not addresses:
        raise ConfigError(
            "bootstrap_servers is not set: give the address of a broker, as in 'localhost:9092'"
        )


def _unknown_host(error: BaseException) -> bool:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, socket.gaierror):
            return cause.errno == socket.EAI_NONAME
        cause = cause.__cause__
    return False
