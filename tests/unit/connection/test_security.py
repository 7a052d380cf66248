"""Security settings and the meaning of failed TLS handshakes."""

from __future__ import annotations

import ssl

import pytest

from aiokq.connection.sasl.plain import plain
from aiokq.connection.security import SECURITY_PROTOCOLS, security, tls_error
from aiokq.core.errors import AuthenticationFailed, ConfigError, ConnectionLost


def test_each_security_protocol_enables_tls_and_sasl_as_named() -> None:
    """Four protocols are the combinations of TLS and SASL."""
    mechanism = plain("u", "p")
    for name in SECURITY_PROTOCOLS:
        made = security(name, mechanism=mechanism if name.startswith("SASL") else None)
        assert made.protocol == name
        assert (made.ssl_context is not None) == name.endswith("SSL")


def test_settings_that_do_not_fit_the_protocol_name_the_right_one() -> None:
    """If SASL_SSL was forgotten, an error is better than a password sent unencrypted."""
    with pytest.raises(ConfigError, match="set SASL_SSL"):
        security(
            "SASL_PLAINTEXT", ssl_context=ssl.create_default_context(), mechanism=plain("u", "p")
        )
    with pytest.raises(ConfigError, match="needs a sasl_mechanism"):
        security("SASL_SSL")
    with pytest.raises(ConfigError, match="set SASL_PLAINTEXT"):
        security("PLAINTEXT", mechanism=plain("u", "p"))
    with pytest.raises(ConfigError, match="not one of PLAINTEXT, SSL"):
        security("TLS")


def test_a_certificate_that_cannot_be_verified_is_an_authentication_error() -> None:
    """Retrying does not help; the error names the setting to use."""
    error = ssl.SSLCertVerificationError(1, "self-signed certificate")
    error.verify_message = "self-signed certificate"
    result = tls_error(error, "10.0.0.1:9093")
    assert isinstance(result, AuthenticationFailed)
    assert not result.retriable
    assert "ssl_cafile" in str(result)


def test_tls_on_a_plaintext_port_is_recognised() -> None:
    """OpenSSL's WRONG_VERSION_NUMBER is not understandable for most users."""
    error = ssl.SSLError(1, "wrong version number")
    error.reason = "WRONG_VERSION_NUMBER"
    result = tls_error(error, "10.0.0.1:9092")
    assert isinstance(result, ConnectionLost)
    assert "security_protocol=PLAINTEXT" in str(result)
    assert result.may_have_been_written is False


def test_a_missing_client_certificate_is_recognised() -> None:
    """The broker has ssl.client.auth=required."""
    error = ssl.SSLError(1, "alert")
    error.reason = "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    result = tls_error(error, "10.0.0.1:9093")
    assert isinstance(result, AuthenticationFailed)
    assert "ssl_certfile" in str(result)
