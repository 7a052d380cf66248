"""Who delays requests after a throttle: since KIP-219 the client, before it the broker."""

from __future__ import annotations

from aiokq import wire
from aiokq.connection.throttling import throttle_seconds


def test_the_client_waits_if_the_broker_responds_before_the_throttle() -> None:
    """For Produce, since v6 (KIP-219)."""
    assert throttle_seconds(wire.ProduceResponse(throttle_time_ms=250), 6) == 0.25
    assert throttle_seconds(wire.ProduceResponse(throttle_time_ms=250), 5) == 0.0


def test_apis_newer_than_kip_219_throttle_in_all_versions() -> None:
    """DescribeCluster was added after KIP-219."""
    assert throttle_seconds(wire.DescribeClusterResponse(throttle_time_ms=100), 0) == 0.1


def test_responses_without_throttle_time_do_not_throttle() -> None:
    """SaslHandshake has no throttle_time_ms."""
    assert throttle_seconds(wire.SaslHandshakeResponse(), 1) == 0.0
    assert throttle_seconds(wire.FetchResponse(), 12) == 0.0
