"""`open_connection`: opens a connection, and does its TLS, ApiVersions and SASL handshakes.

The message of an error says which setting of the client or which listener may be wrong.

Source: KIP-35, KIP-511 (ApiVersions), KIP-43, KIP-152, KIP-368 (SASL).
"""

from __future__ import annotations

import asyncio
import enum
import os
import ssl
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from aiokq.connection.connection import Connection
from aiokq.connection.finalized_features import FinalizedFeatures
from aiokq.connection.security import tls_error
from aiokq.core.errors import (
    ConnectionLost,
    KafkaError,
    ProtocolError,
    RequestTimeout,
    UnsupportedVersion,
    error_for,
)
from aiokq.wire.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from aiokq.connection.frame_pool import FramePool
    from aiokq.connection.options import ConnectionOptions
    from aiokq.connection.sasl.mechanism import MechanismFactory
    from aiokq.connection.security import Security
    from aiokq.core.counters import ClientCounters
    from aiokq.core.environment import Address, Environment
    from aiokq.core.supervisor import Supervisor
    from aiokq.wire import Request

__all__ = ["ClosedOnApiVersions", "HandshakeStep", "HandshakeTimeout", "open_connection"]

_UNSUPPORTED_VERSION = 35

TOO_OLD = (
    "closed the connection on ApiVersions: it is a broker older than 0.10 (aiokq needs 0.10 or "
    "newer), a listener that expects TLS (set security_protocol=SSL or SASL_SSL) or a client "
    "certificate (ssl_certfile), a proxy whose broker is down, a broker at its limit of "
    "connections or open files, or not Kafka"
)


class HandshakeStep(enum.Enum):
    """The steps of `open_connection` that wait for the peer, in their order."""

    TCP = "TCP connection"
    TLS = "TLS handshake"
    API_VERSIONS = "ApiVersions"
    SASL_HANDSHAKE = "SaslHandshake"
    SASL_EXCHANGE = "SASL exchange"


_STEP_OF_API: Final = {
    "ApiVersions": HandshakeStep.API_VERSIONS,
    "SaslHandshake": HandshakeStep.SASL_HANDSHAKE,
    "SaslAuthenticate": HandshakeStep.SASL_EXCHANGE,
}

_NOT_THIS_PROTOCOL: Final = (
    "not Kafka, a listener of another security_protocol, or an overloaded broker"
)

_TIMEOUT_CAUSES: Final = {
    HandshakeStep.TCP: "a firewall, or the host is down",
    HandshakeStep.TLS: _NOT_THIS_PROTOCOL,
    HandshakeStep.API_VERSIONS: _NOT_THIS_PROTOCOL,
    HandshakeStep.SASL_HANDSHAKE: "an overloaded broker",
    HandshakeStep.SASL_EXCHANGE: "the credentials are not obtained in time on the client, or not "
    "checked in time on the broker",
}


class HandshakeTimeout(ConnectionLost):
    """The time for a connection and its handshake has run out.

    Attributes:
        step: the step that was not complete.
    """

    def __init__(self, step: HandshakeStep, told: str, node: int | str) -> None:
        super().__init__(
            f"{step.value}: {told}: {_TIMEOUT_CAUSES[step]}",
            node=node,
            may_have_been_written=False,
        )
        self.step = step


class ClosedOnApiVersions(ConnectionLost):
    """The peer closed the connection instead of answering ApiVersions.

    The peer may be a broker that is shutting down. If this error repeats, the caller may raise the
    error that `too_old` returns.
    """


def too_old(peer: int | str) -> UnsupportedVersion:
    """Return the error for a peer that repeatedly closes the connection after ApiVersions."""
    return UnsupportedVersion(f"the peer {TOO_OLD}", api="ApiVersions", node=peer)


async def open_connection(
    address: Address,
    options: ConnectionOptions,
    *,
    host: str,
    name: int | str,
    timeout: float,
    environment: Environment,
    counters: ClientCounters,
    on_throttle: Callable[[float], None] | None = None,
    pool: FramePool | None = None,
    supervisor: Supervisor | None = None,
) -> Connection:
    """Connect to one address and complete the handshake.

    The call may be cancelled.

    Args:
        address: numeric address.
        options: security and limits.
        host: name that resolved to the address, for certificates and SASL.
        name: node id or "host:port", for errors.
        timeout: maximum duration of the call in seconds. Each request of the handshake also has its
            own timeout, `request_timeout_ms`.
        environment: network and clock.
        counters: counters of the traffic.
        on_throttle: called with the throttle time in seconds that the broker reports (KIP-219).
        pool: memory for large responses, shared with other connections; None for memory of this
            connection alone.
        supervisor: runs the renewals of the SASL session; None to replace the connection when its
            session ends.

    Raises:
        ConnectionLost: the peer is unreachable, or closed the connection during the handshake.
        HandshakeTimeout: the call, or a request of the handshake, was not answered in time.
        AuthenticationFailed: certificate or credentials are refused.
        UnsupportedVersion: no version of an API is common to both sides.
        ProtocolError: the peer does not speak Kafka.
        BrokerError: the broker refused a request of the handshake, for example because SASL or the
            mechanism is not enabled.
    """
    connection = Connection(
        options,
        name=name,
        clock=environment.clock,
        counters=counters,
        on_throttle=on_throttle,
        pool=pool,
    )
    security = options.security
    hostname = security.server_hostname or host
    step: HandshakeStep | None = None
    try:
        async with asyncio.timeout(timeout):
            await _connect(connection, address, security, hostname, environment)
            try:
                await _negotiate(connection)
                if security.mechanism is not None:
                    random = environment.random
                    await _log_in(connection, security.mechanism, hostname, random, supervisor)
            except BaseException as error:
                # The API whose answer is missing; None while the mechanism prepares a message.
                api = error.api if isinstance(error, RequestTimeout) else connection.awaited_api
                step = _STEP_OF_API.get(api or "", HandshakeStep.SASL_EXCHANGE)
                await _abort(connection, error, address)
                raise
    except RequestTimeout as error:
        if error.origin == "broker" or step is None:
            raise
        raise HandshakeTimeout(step, error.message, name) from None
    except TimeoutError:
        if step is None:
            step = HandshakeStep.TLS if connection.transport.in_handshake else HandshakeStep.TCP
        raise HandshakeTimeout(step, f"no answer within {timeout:.3g} s", name) from None
    connection.ready()
    return connection


async def _connect(
    connection: Connection,
    address: Address,
    security: Security,
    hostname: str,
    environment: Environment,
) -> None:
    """Connect, and do the TLS handshake."""
    context = None
    if security.tls is not None:
        context = await security.tls.current(environment.clock, environment.offload)
    try:
        await environment.network.connect(
            lambda: connection.transport,
            address,
            ssl=context,
            server_hostname=None if context is None else hostname,
        )
    except ssl.SSLError as error:
        raise tls_error(error, str(address)) from error
    except OSError as error:
        hint = ""
        if context is not None and isinstance(error, ConnectionResetError):
            hint = "; if the port is not TLS, set security_protocol=PLAINTEXT or SASL_PLAINTEXT"
        raise ConnectionLost(
            f"{_os_reason(error)}{hint}",
            node=connection.name,
            may_have_been_written=False,
        ) from error


async def _abort(connection: Connection, error: BaseException, address: Address) -> None:
    """Close a connection whose handshake failed after TLS; raise a more specific error if any."""
    connection.abort(
        error if isinstance(error, KafkaError) else ConnectionLost("handshake abandoned")
    )
    if isinstance(error, ConnectionLost):
        # An error in the peer's bytes is more specific than the loss of the connection.
        cause = await connection.wait_closed()
        if isinstance(cause, ProtocolError):
            raise cause from None
        if isinstance(cause.__cause__, ssl.SSLError):
            # TLS 1.3: the peer checks our certificate after our side has finished the handshake.
            raise tls_error(cause.__cause__, str(address)) from error


async def _negotiate(connection: Connection) -> None:
    """Request the broker's API versions.

    ApiVersions is sent in aiokq's newest version. If the broker does not support that version,
    ApiVersions is sent in the newest version that the error response names, or else in version 0.
    """
    request = connection.completed(ApiVersionsRequest())
    version = ApiVersionsRequest.MAX_VERSION
    while True:
        response = await _ask_versions(connection, request, version)
        if response.error_code != _UNSUPPORTED_VERSION:
            break
        if version == 0:
            raise UnsupportedVersion(
                "the peer refuses ApiVersions, even version 0",
                api="ApiVersions",
                node=connection.name,
            )
        # The error response is in version 0; since Kafka 2.4 it names the supported range
        # (KIP-511).
        newest = next(
            (api.max_version for api in response.api_keys if api.api_key == request.API_KEY), 0
        )
        version = newest if 0 <= newest < version else 0
    if response.error_code:
        raise error_for(response.error_code, api="ApiVersions", node=connection.name)
    connection.api_versions = {
        api.api_key: (api.min_version, api.max_version) for api in response.api_keys
    }
    connection.finalized_features = FinalizedFeatures(
        response.finalized_features_epoch,
        {feature.name: feature.max_version_level for feature in response.finalized_features},
    )


async def _ask_versions(
    connection: Connection, request: Request[ApiVersionsResponse], version: int
) -> ApiVersionsResponse:
    try:
        return await connection.request(request, version=version)
    except ConnectionLost as error:
        if isinstance(connection.error, ConnectionLost) and not connection.transport.bytes_in:
            raise ClosedOnApiVersions(
                f"the peer {TOO_OLD}", node=connection.name, may_have_been_written=False
            ) from error
        raise


async def _log_in(
    connection: Connection,
    mechanism: MechanismFactory,
    hostname: str,
    random: Random,
    supervisor: Supervisor | None,
) -> None:
    # Imported here, because a client without SASL needs neither module.
    from aiokq.connection.sasl.authentication import authenticate
    from aiokq.connection.session_renewal import SessionRenewal

    session = await authenticate(connection, mechanism(hostname))
    SessionRenewal(connection, lambda: mechanism(hostname), random, supervisor).begin(session)


def _os_reason(error: OSError) -> str:
    """Return the system's error text, which asyncio's loop replaces by "Connect call failed"."""
    if error.errno:
        return os.strerror(error.errno)
    return error.strerror or str(error) or type(error).__name__
