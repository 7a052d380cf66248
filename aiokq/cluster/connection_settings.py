"""Builds connection options, TLS context and SASL mechanism from the settings of a cluster."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from aiokq.cluster.values import ClusterValues
from aiokq.connection.options import ConnectionOptions
from aiokq.connection.security import Security, security
from aiokq.core.environment import Environment
from aiokq.core.errors import ConfigError

if TYPE_CHECKING:
    from aiokq.core.supervisor import Supervisor

__all__ = ["connection_options", "tls_context"]


def connection_options(
    settings: ClusterValues, environment: Environment, supervisor: Supervisor | None = None
) -> ConnectionOptions:
    """Return the connection options that result from the settings of a cluster.

    Args:
        environment: clock, random numbers and threads for the SASL mechanism.
        supervisor: runs the refreshes of tokens; None to fetch a token whenever there is none.

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
        # Imported here, because most clients without TLS have no SASL, too.
        from aiokq.cluster.sasl_mechanism import sasl_mechanism

        mechanism, prepare = sasl_mechanism(settings, environment, supervisor)
    return security(
        settings.security_protocol,
        ssl_context=tls_context(settings) if settings.uses_tls else None,
        mechanism=mechanism,
        prepare=prepare,
    )


def tls_context(settings: ClusterValues) -> ssl.SSLContext:
    """Return the setting ``ssl_context``, or a context made from the ``ssl_*`` files.

    Raises:
        ConfigError: a file is missing or invalid; the error names the file.
    """
    if settings.ssl_context is not None:
        return settings.ssl_context
    try:
        context = ssl.create_default_context(cafile=settings.ssl_cafile)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"ssl_cafile={settings.ssl_cafile!r}: {_reason(error)}") from error
    context.check_hostname = settings.ssl_check_hostname
    if settings.ssl_certfile is not None:
        password = settings.ssl_password
        try:
            context.load_cert_chain(
                settings.ssl_certfile,
                settings.ssl_keyfile,
                # Without this callback, OpenSSL would ask for a missing password on the terminal.
                # With an empty password, an encrypted key cannot be loaded.
                lambda: "" if password is None else password,
            )
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"ssl_certfile={settings.ssl_certfile!r}, ssl_keyfile={settings.ssl_keyfile!r}: "
                f"{_reason(error)}; both must be PEM files, the key must belong to the "
                "certificate, and ssl_password must decrypt the key"
            ) from error
    return context


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
