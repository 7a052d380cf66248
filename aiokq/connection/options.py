"""Owns what a client connection needs to be told; the settings it comes from are the cluster's."""

from __future__ import annotations

from aiokq._version import __version__
from aiokq.connection.framing import DEFAULT_MAX_FRAME_BYTES
from aiokq.connection.security import PLAINTEXT, Security
from aiokq.core.frozen import frozen

__all__ = ["ConnectionOptions"]


@frozen
class ConnectionOptions:
    """How connections to brokers are made and kept. Durations are seconds; defaults are Kafka's.

    Attributes:
        client_id: sent with every request.
        request_timeout: `request_timeout_ms`, for requests that are given no timeout.
        setup_timeout: `socket_connection_setup_timeout_ms`: of one attempt on one address, TLS
            and handshake included; doubles with every failure in a row (KIP-601),
        setup_timeout_max: up to this.
        reconnect_backoff: `reconnect_backoff_ms`: delay after a first failure,
        reconnect_backoff_max: `reconnect_backoff_max_ms`: and after many.
        max_idle: `connections_max_idle_ms`; 0 for never.
        max_frame_bytes: largest response accepted.
        security: TLS and SASL.
        software_name: who we are, for the broker's metrics (KIP-511).
        software_version: and which version.
    """

    client_id: str = "aiokq"
    request_timeout: float = 30.0
    setup_timeout: float = 10.0
    setup_timeout_max: float = 30.0
    reconnect_backoff: float = 0.05
    reconnect_backoff_max: float = 1.0
    max_idle: float = 540.0
    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES
    security: Security = PLAINTEXT
    software_name: str = "aiokq"
    software_version: str = __version__
