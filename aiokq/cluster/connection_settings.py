"""Builds connection options, TLS context and SASL mechanism from the settings of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokq.cluster.values import ClusterValues
from aiokq.connection.options import ConnectionOptions
from aiokq.connection.security import Security, security
from aiokq.core.environment import Environment

if TYPE_CHECKING:
    from aiokq.connection.tls.tls_contexts import TlsContexts
    from aiokq.connection.tls.tls_settings import TlsSettings
    from aiokq.core.supervisor import Supervisor

__all__ = ["connection_options", "tls_contexts"]

_OF_KAFKA: Final = (
    "truststore_type",
    "truststore_location",
    "truststore_password",
    "truststore_certificates",
    "keystore_type",
    "keystore_location",
    "keystore_password",
    "keystore_key",
    "keystore_certificate_chain",
    "key_password",
    "protocol",
    "enabled_protocols",
    "cipher_suites",
    "endpoint_identification_algorithm",
)
"""The TLS settings that have Kafka's names; the prefix `ssl_` of each name is left out."""


def connection_options(
    settings: ClusterValues, environment: Environment, supervisor: Supervisor | None = None
) -> ConnectionOptions:
    """Return the connection options that result from the settings of a cluster.

    Args:
        environment: clock, random numbers and threads for the SASL mechanism.
        supervisor: refreshes tokens in tasks; None to fetch a token only when none is valid.

    Raises:
        ConfigError: a certificate file cannot be read, or a credential is not valid.
    """
    return ConnectionOptions(
        client_id=settings.client_id,
        request_timeout=settings.request_timeout,
        setup_timeout=settings.socket_connection_setup_timeout_ms / 1000,
        setup_timeout_max=settings.socket_connection_setup_timeout_max_ms / 1000,
        reconnect_backoff=settings.reconnect_backoff_ms / 1000,
        reconnect_backoff_max=settings.reconnect_backoff_max_ms / 1000,
        max_idle=settings.connections_max_idle_ms / 1000,
        security=_security(settings, environment, supervisor),
    )


def _security(
    settings: ClusterValues, environment: Environment, supervisor: Supervisor | None
) -> Security:
    mechanism = prepare = None
    if settings.uses_sasl:
        # Imported here, because most clients use no SASL, and each module delays their start.
        from aiokq.cluster.sasl_mechanism import sasl_mechanism

        mechanism, prepare = sasl_mechanism(settings, environment, supervisor)
    return security(
        settings.security_protocol,
        ssl_context=tls_contexts(settings) if settings.uses_tls else None,
        mechanism=mechanism,
        prepare=prepare,
    )


def tls_contexts(settings: ClusterValues) -> TlsContexts:
    """Return the contexts of connections with TLS.

    Raises:
        ConfigError: a file is missing or invalid, or settings contradict each other.
    """
    # Imported here, because most clients use no TLS, and each module delays their start.
    from aiokq.connection.tls.contexts import client_context
    from aiokq.connection.tls.tls_contexts import TlsContexts

    if settings.ssl_context is not None:
        return TlsContexts.fixed(settings.ssl_context)
    return TlsContexts(client_context, _tls_settings(settings), f"client {settings.client_id}")


def _tls_settings(settings: ClusterValues) -> TlsSettings:
    """Return the TLS settings by Kafka's names; aiokq's short names mean PEM files."""
    from aiokq.connection.tls.tls_settings import TlsSettings

    names: dict[str, str] = {}
    values: dict[str, object] = {
        f"ssl.{name.replace('_', '.')}": getattr(settings, f"ssl_{name}") for name in _OF_KAFKA
    }
    if not settings.ssl_check_hostname:
        values["ssl.endpoint.identification.algorithm"] = ""
    for store, location, short in (
        ("truststore", "ssl.truststore.location", "ssl_cafile"),
        ("keystore", "ssl.keystore.location", "ssl_certfile"),
        ("", "ssl.key.location", "ssl_keyfile"),
        ("", "ssl.key.password", "ssl_password"),
    ):
        value = getattr(settings, short)
        if value is not None:
            values[location] = value
            names[location] = short
            if store:
                values[f"ssl.{store}.type"] = "PEM"
    if settings.ssl_certfile is not None:
        names["ssl.key.password"] = "ssl_password"
    return TlsSettings.from_kafka(values, lambda name: names.get(name) or name.replace(".", "_"))
