"""`open_connection`: opens a connection, and does its TLS, ApiVersions and SASL handshakes.

The message of an error says which setting of the client or which listener may be wrong.

Source: KIP-35, KIP-511 (ApiVersions), KIP-43, KIP-152, KIP-368 (SASL).
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from aiokq.connection.connection import Connection
from aiokq.connection.finalized_features import FinalizedFeatures
from aiokq.connection.security import tls_error
from aiokq.core.errors import (
    ConnectionLost,
    KafkaError,
    ProtocolError,
    UnsupportedVersion,
    error_for,
)
from aiokq.wire.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from aiokq.connection.frame_pool import FramePool
    from aiokq.connection.options import ConnectionOptions
    from aiokq.connection.sasl.mechanism import MechanismFactory
    from aiokq.core.counters import ClientCounters
    from aiokq.core.environment import Address, Environment
    from aiokq.core.supervisor import Supervisor
    from aiokq.wire import Request

__all__ = ["ClosedOnApiVersions", "open_connection"]

_UNSUPPORTED_VERSION = 35

TOO_OLD = (
    "closed the connection on ApiVersions: it is a broker older than 0.10 (aiokq needs 0.10 or "
    "newer), a listener that expects TLS (set security_protocol=SSL or SASL_SSL) or a client "
    "certificate (ssl_certfile), a proxy whose broker is down, a broker at its limit of "
    "connections or open files, or not Kafka"
)


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
    environment: Environment,
    counters: ClientCounters,
    on_throttle: Callable[[float], None] | None = None,
    pool: FramePool | None = None,
    supervisor: Supervisor | None = None,
) -> Connection:
    """Connect to one address and complete the handshake.

    The call may be cancelled. Each request of the handshake has a timeout; the call has none.

    Args:
        address: numeric address.
        options: security and limits.
        host: name that resolved to the address, for certificates and SASL.
        name: node id or "host:port", for errors.
        environment: network and clock.
        counters: counters of the traffic.
        on_throttle: called with the throttle time in seconds that the broker reports (KIP-219).
        pool: memory for large responses, shared with other connections; None for memory of this
            connection alone.
        supervisor: runs the renewals of the SASL session; None to replace the connection when its
            session ends.

    Raises:
        ConnectionLost: the peer is unreachable, or closed the connection during the handshake.
        RequestTimeout: a request of the handshake was not answered within `request_timeout_ms`.
        AuthenticationFailed: certificate or credentials are refused.
        UnsupportedVersion: no version of an API is common to both sides.
        ProtocolError: the peer does not speak Kafka.
        BrokerError: the broker refused a request of the handshake, for example because SASL or the
            mechanism is not enabled.
    """
    security = options.security
    connection = Connection(
        options,
        name=name,
        clock=environment.clock,
        counters=counters,
        on_throttle=on_throttle,
        pool=pool,
    )
    hostname = security.server_hostname or host
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
            node=name,
            may_have_been_written=False,
        ) from error
    try:
        await _negotiate(connection)
        if security.mechanism is not None:
            await _log_in(connection, security.mechanism, hostname, environment.random, supervisor)
    except BaseException as error:
        reason = error if isinstance(error, KafkaError) else ConnectionLost("handshake abandoned")
        connection.abort(reason)
        if isinstance(error, ConnectionLost):
            # An error in the peer's bytes is more specific than the loss of the connection.
            cause = await connection.wait_closed()
            if isinstance(cause, ProtocolError):
                raise cause from None
            if isinstance(cause.__cause__, ssl.SSLError):
                # TLS 1.3: the peer checks our certificate after our side has finished the
                # handshake.
                raise tls_error(cause.__cause__, str(address)) from error
        raise
    connection.ready()
    return connection


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
