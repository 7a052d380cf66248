"""ConnectionOptions: options for opening and keeping a client's connections."""

from __future__ import annotations

from aiokq._version import __version__
from aiokq.connection.framing import DEFAULT_MAX_FRAME_BYTES
from aiokq.connection.security import PLAINTEXT, Security
from aiokq.core.frozen import frozen

__all__ = ["ConnectionOptions"]


@frozen
class ConnectionOptions:
    """Options for opening and keeping connections. Durations are seconds, with Kafka's defaults.

    Attributes:
        client_id: name of the client, sent with every request.
        request_timeout: timeout of requests without a timeout of their own (`request_timeout_ms`).
        setup_timeout: timeout of an attempt to connect to one address, including TLS and handshake
            (`socket_connection_setup_timeout_ms`). Each consecutive failure doubles the timeout
            (KIP-601).
        setup_timeout_max: maximum of the timeout after failures.
        reconnect_backoff: delay after the first failure (`reconnect_backoff_ms`).
        reconnect_backoff_max: maximum delay after failures (`reconnect_backoff_max_ms`).
        max_idle: time after which an idle connection is closed (`connections_max_idle_ms`); 0 for
            no limit.
        max_frame_bytes: largest response that is accepted, in bytes.
        security: TLS and SASL configuration.
        software_name: name of the client, for the broker's metrics (KIP-511).
        software_version: version of the client.
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
