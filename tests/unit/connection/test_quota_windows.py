"""Rates and token buckets: the times that Apache Kafka 4.2 throttles, and rates in the long run."""

from __future__ import annotations

import pytest

from aiokq.connection.quota_windows import MAX_THROTTLE_MS, QuotaWindow, Rate, TokenBucket


def test_one_large_request_is_throttled_as_by_kafka() -> None:
    """Measured on Kafka 4.2: 4002 ms for 700 kB at 50000 bytes/s, nothing for 900 kB at 100000."""
    rate = Rate()
    rate.record(700_100, 5_000)
    assert rate.excess_ms(50_000, 5_000) == 4002
    rate = Rate()
    rate.record(900_100, 5_000)
    assert rate.excess_ms(100_000, 5_000) == 0


def test_a_new_rate_is_divided_by_ten_seconds_and_the_current_fraction() -> None:
    """Otherwise the first request of a client would look like a flood."""
    rate = Rate()
    rate.record(1000, 0)
    assert rate.per_second(0) == 100
    assert rate.per_second(500) == pytest.approx(1000 / 10.5)
    assert rate.per_second(1000) == 100
    assert rate.per_second(3250) == pytest.approx(1000 / 10.25)


def test_a_sample_counts_until_its_last_event_is_as_old_as_the_window() -> None:
    """The window is 11 samples of a second; their events count together."""
    rate = Rate()
    rate.record(500, 0)
    rate.record(500, 999)
    assert rate.per_second(11_998) == pytest.approx(1000 / 11.998)
    assert rate.per_second(11_999) == 0
    rate.record(100, 12_000)
    assert rate.per_second(12_000) == 10


def test_a_sample_ends_with_the_first_event_after_a_second() -> None:
    """A client that sends every 1.5 s has samples of 1.5 s."""
    rate = Rate()
    for step in range(20):
        rate.record(150, step * 1500)
    # The events since 12.0 s, with 7 full samples: 10 s and the fraction of the last one.
    assert rate.per_second(19 * 1500) == pytest.approx(8 * 150 / 10.5)


def test_no_more_samples_are_kept_than_kafka_keeps() -> None:
    """Events exactly a second apart would otherwise keep twelve samples alive, or more."""
    rate = Rate(QuotaWindow(samples=3, sample_ms=1000))
    for second in range(100):
        rate.record(1, second * 1000)
    assert len(rate._samples) <= 4


def test_a_value_can_be_asked_for_without_counting_it() -> None:
    """A response that is not sent must not count."""
    rate = Rate()
    assert rate.excess_ms(100, 0, more=1500) == 5000
    assert rate.excess_ms(100, 0) == 0
    rate.record(1000, 0)
    assert rate.excess_ms(100, 0, more=1) == 10
    rate.record(-1000, 0)
    assert rate.per_second(0) == 0


@pytest.mark.parametrize("size", [1_000, 100_000, 3_000_000])
def test_a_client_that_waits_as_told_keeps_to_its_rate(size: int) -> None:
    """Within 10 % over 30 seconds after the first window, whatever the size of its requests."""
    rate, limit = Rate(), 500_000
    now_ms = sent = 0
    begin = end = 0
    while now_ms < 400_000:
        if now_ms <= 11_000:
            begin = sent
        if now_ms <= 311_000:
            end = sent
        sent += size
        rate.record(size, now_ms)
        now_ms += rate.excess_ms(limit, now_ms) or 1
    assert (end - begin) / 300 == pytest.approx(limit, rel=0.1)


def test_a_bucket_is_full_at_first_and_may_be_overdrawn_once() -> None:
    """Measured on Kafka 4.2 with a rate of 1: 5, then 10 partitions pass; then wait 3928 ms."""
    bucket = TokenBucket()
    assert bucket.left(1, 0) == 11
    bucket.take(5, 1, 0)
    bucket.take(10, 1, 60)
    assert bucket.left(1, 72) == pytest.approx(-3.928)
    assert bucket.excess_ms(1, 72) == 3928
    assert bucket.excess_ms(1, 4100) == 0


def test_a_bucket_refills_up_to_its_size() -> None:
    """An hour without changes does not allow an hour of changes at once."""
    bucket = TokenBucket(QuotaWindow(samples=5, sample_ms=2000))
    bucket.take(20, 2, 0)
    assert bucket.left(2, 5_000) == 10
    assert bucket.left(2, 3_600_000) == 20


@pytest.mark.parametrize("limit", [1e-3, 1e-9, 1e-300, 5e-324])
def test_a_throttle_time_fits_into_the_field_of_a_response(limit: float) -> None:
    """The field is an int32; the quotient of a tiny limit is even infinite."""
    rate = Rate()
    rate.record(1e9, 5_000)
    assert rate.excess_ms(limit, 5_000) == MAX_THROTTLE_MS == 2**31 - 1
    bucket = TokenBucket()
    bucket.take(1e9, limit, 0)
    assert bucket.excess_ms(limit, 0) == MAX_THROTTLE_MS
