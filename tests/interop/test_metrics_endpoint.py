"""The metrics endpoint, scraped over HTTP as Prometheus does."""

from __future__ import annotations

import urllib.request

import pytest

from aiokq import metrics
from aiokq.core.counters import BrokerCounters


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
        text: str = response.read().decode()
        return text


def test_values_are_served_until_the_server_is_closed():
    """`aiokq broker --metrics-port`: a port that stayed in use would break the restart."""
    counters = BrokerCounters("77")
    with metrics.serve(0) as server:
        counters.bytes_in += 5
        assert 'aiokq_broker_bytes_in_total{broker="77"} 5.0' in scrape(server.port)
        counters.bytes_in += 5
        assert 'aiokq_broker_bytes_in_total{broker="77"} 10.0' in scrape(server.port)
        port = server.port
    with pytest.raises(OSError, match="refused"):
        scrape(port)
    with metrics.serve(port) as again:
        assert again.port == port


def test_a_port_in_use_is_an_os_error():
    """The command line reports it in one line."""
    with metrics.serve(0) as server, pytest.raises(OSError, match="in use"):
        metrics.serve(server.port)
