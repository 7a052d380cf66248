"""Which step of a handshake `aiokq doctor` names for an error, and its advice."""

from __future__ import annotations

import ssl

import pytest

from aiokq.cli.handshake_steps import Step, advice, failed_step
from aiokq.connection.handshake import ClosedOnApiVersions, HandshakeStep, HandshakeTimeout
from aiokq.connection.security import tls_error
from aiokq.connection.tls.failure import ClosedInHandshake
from aiokq.core.errors import (
    AuthenticationFailed,
    ClusterAuthorization,
    ConnectionLost,
    KafkaError,
    ProtocolError,
    RequestTimeout,
    TopicAuthorization,
    UnsupportedVersion,
    error_for,
)


def tls(reason: str) -> KafkaError:
    cause = ssl.SSLError(1, f"[SSL: {reason}]")
    cause.reason = reason
    return tls_error(cause, "broker:9093")


def closed_in_handshake() -> KafkaError:
    error = ConnectionLost("closed")
    error.__cause__ = ClosedInHandshake()
    return error


def not_verified() -> KafkaError:
    cause = ssl.SSLCertVerificationError(1, "certificate verify failed")
    cause.verify_message = "unable to get local issuer certificate"
    return tls_error(cause, "broker:9093")


@pytest.mark.parametrize(
    ("error", "step"),
    [
        (ConnectionLost("Connection refused"), Step.TCP),
        (tls("WRONG_VERSION_NUMBER"), Step.TLS),
        (tls("TLSV1_ALERT_PROTOCOL_VERSION"), Step.TLS),
        (closed_in_handshake(), Step.TLS),
        (not_verified(), Step.CERTIFICATE),
        (tls("TLSV13_ALERT_CERTIFICATE_REQUIRED"), Step.CERTIFICATE),
        (tls("TLSV1_ALERT_UNKNOWN_CA"), Step.CERTIFICATE),
        (ClosedOnApiVersions("closed"), Step.API_VERSIONS),
        (ProtocolError("not Kafka"), Step.API_VERSIONS),
        (UnsupportedVersion("old", api="ApiVersions"), Step.API_VERSIONS),
        (RequestTimeout(api="ApiVersions"), Step.API_VERSIONS),
        (error_for(33, api="SaslHandshake"), Step.MECHANISM),
        (AuthenticationFailed("wrong", api="SaslAuthenticate"), Step.CREDENTIALS),
        (AuthenticationFailed("there is no token"), Step.CREDENTIALS),
        (TopicAuthorization(), Step.AUTHORIZATION),
        (ClusterAuthorization(api="DescribeCluster"), Step.AUTHORIZATION),
    ],
)
def test_the_step_of_an_error(error, step):
    assert failed_step(error) is step
    assert advice(step, error, "bootstrap_servers")


def test_a_chain_of_causes_that_is_a_circle_ends():
    error, other = ConnectionLost("one"), ConnectionLost("other")
    error.__cause__, other.__cause__ = other, error
    assert failed_step(error) is Step.TCP


def test_the_address_is_doubted_only_if_nothing_answered():
    assert "bootstrap_servers" in advice(Step.TCP, ConnectionLost(""), "bootstrap_servers")
    for step in (Step.TLS, Step.CERTIFICATE, Step.MECHANISM, Step.CREDENTIALS):
        assert "bootstrap_servers" not in advice(step, ConnectionLost(""), "bootstrap_servers")


@pytest.mark.parametrize("step", HandshakeStep)
def test_the_step_and_the_advice_of_a_timeout(step):
    """Neither a refusal of the mechanism nor one of the credentials is assumed."""
    error = HandshakeTimeout(step, "no answer within 10 s", "broker:9093")
    assert failed_step(error).value == step.value
    told = advice(failed_step(error), error, "bootstrap_servers")
    assert ("bootstrap_servers" in told) == (step is HandshakeStep.TCP)
    assert "password" not in told
    assert "sasl_mechanism" not in told
