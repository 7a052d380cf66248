"""Finds the failed step of a handshake with a broker, and advice for it, for `aiokq doctor`."""

from __future__ import annotations

import enum
import ssl
from collections.abc import Iterator
from typing import Final

from aiokq.connection.handshake import ClosedOnApiVersions, HandshakeTimeout
from aiokq.connection.tls.failure import ClosedInHandshake
from aiokq.core.errors import (
    AuthenticationFailed,
    ClusterAuthorization,
    ConnectionLost,
    GroupAuthorization,
    KafkaError,
    ProtocolError,
    TopicAuthorization,
    UnsupportedVersion,
)

__all__ = ["Step", "advice", "failed_step"]


class Step(enum.Enum):
    """The steps from a connection to the first request, in their order.

    The values of `HandshakeStep` are among these values. The broker refuses a mechanism in
    SaslHandshake, and credentials in the SASL exchange; these two steps are named if the time runs
    out in them.
    """

    TCP = "TCP connection"
    TLS = "TLS handshake"
    CERTIFICATE = "certificate"
    API_VERSIONS = "ApiVersions"
    SASL_HANDSHAKE = "SaslHandshake"
    MECHANISM = "SASL mechanism"
    SASL_EXCHANGE = "SASL exchange"
    CREDENTIALS = "credentials"
    AUTHORIZATION = "authorization"


_OF_API: Final = {
    "ApiVersions": Step.API_VERSIONS,
    "SaslHandshake": Step.MECHANISM,
    "SaslAuthenticate": Step.CREDENTIALS,
}

_CERTIFICATE_ALERTS: Final = ("CERTIFICATE", "UNKNOWN_CA")
"""Parts of the names of alerts with which a broker refuses the certificate of a client."""

_ADVICE: Final = {
    Step.TLS: "check that security_protocol and the port belong together: this listener may not "
    "use TLS, or no version of TLS and no cipher suite is common to both sides",
    Step.CERTIFICATE: "trust the authority of the broker's certificate (ssl_cafile, or "
    "ssl.truststore.location), connect by a name in the certificate, and if the broker demands a "
    "client certificate, give one that it trusts (ssl_certfile and ssl_keyfile)",
    Step.MECHANISM: "set sasl_mechanism to one that the listener offers, or enable the mechanism "
    "in sasl.enabled.mechanisms of the broker",
    Step.CREDENTIALS: "check the user and the password, or the token; a user of SCRAM must exist "
    "for this mechanism (aiokq users)",
    Step.AUTHORIZATION: "the login works, but the user may not do this: add an ACL (aiokq acls), "
    "or super.users",
}


_TIMEOUT_ADVICE: Final = {
    Step.TLS: "check that security_protocol and the port belong together: this listener may not "
    "use TLS; or look at the load of the broker",
    Step.SASL_HANDSHAKE: "look at the load and the log of the broker",
    Step.SASL_EXCHANGE: "look at the load of the broker and at what it needs to check credentials, "
    "for example its function authenticate; or at the source of this client's tokens",
}
"""Advice if the time runs out in a step, where it differs from the advice for a refusal."""


def failed_step(error: KafkaError) -> Step:
    """Return the step in which a handshake failed."""
    if isinstance(error, HandshakeTimeout):
        return Step(error.step.value)
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return Step.CERTIFICATE
        if isinstance(cause, ssl.SSLError):
            reason = cause.reason or ""
            of_client = any(part in reason for part in _CERTIFICATE_ALERTS)
            return Step.CERTIFICATE if of_client else Step.TLS
        if isinstance(cause, ClosedInHandshake):
            return Step.TLS
    if isinstance(error, TopicAuthorization | GroupAuthorization | ClusterAuthorization):
        return Step.AUTHORIZATION
    if error.api in _OF_API:
        return _OF_API[error.api]
    if isinstance(error, AuthenticationFailed):  # for example, there is no token
        return Step.CREDENTIALS
    if isinstance(error, UnsupportedVersion | ProtocolError):
        return Step.API_VERSIONS
    if isinstance(error, ClosedOnApiVersions):
        return Step.API_VERSIONS
    return Step.TCP


def advice(step: Step, error: KafkaError, where: str) -> str:
    """Return advice for a step that failed.

    Args:
        where: the setting that names the address.
    """
    if isinstance(error, UnsupportedVersion):
        return "upgrade the broker or aiokq, whichever is older"
    if isinstance(error, HandshakeTimeout) and step in _TIMEOUT_ADVICE:
        return _TIMEOUT_ADVICE[step]
    if step in _ADVICE:
        return _ADVICE[step]
    if step is Step.API_VERSIONS and isinstance(error, ConnectionLost | ProtocolError):
        return (
            "check security_protocol: the listener may use TLS or SASL; and that the port is one "
            "of Kafka"
        )
    return f"check {where} and security_protocol, and that a broker listens at the address"


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen:
        seen.append(cause)
        yield cause
        cause = cause.__cause__
