"""The discard report as text and as JSON, with the names in Bruce's and Dory's reports.

Tests: tests/unit/gateway/test_discard_reports.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from aiokq.fastpath.gateway import API_KEY, API_VERSION, BAD_TOPIC, MALFORMED, REASONS
from aiokq.gateway.texts import base64_text, bracketed, text_of, visible, when

if TYPE_CHECKING:
    from aiokq.gateway.reports.windows import DiscardReport, TopicSpan

__all__ = ["discard_document", "discard_lines"]


def discard_document(report: DiscardReport) -> dict[str, object]:
    """Return a report as a JSON object. `discarded`, the counts by reason, is not in Dory."""
    discarded = report.discarded
    return {
        "id": report.report_id,
        "start_time": report.start_time,
        "malformed_msg_count": discarded[MALFORMED],
        "unix_stream_unclean_disconnect_count": report.unix_stream_unclean_count,
        "tcp_unclean_disconnect_count": report.tcp_unclean_count,
        "unsupported_api_key_msg_count": discarded[API_KEY],
        "unsupported_version_msg_count": discarded[API_VERSION],
        "bad_topic_msg_count": discarded[BAD_TOPIC],
        "recent_malformed": [base64_text(data) for data in report.malformed],
        "unix_stream_unclean_disconnect": [
            base64_text(data) for data in report.unix_stream_unclean
        ],
        "tcp_unclean_disconnect": [base64_text(data) for data in report.tcp_unclean],
        "unsupported_msg_version": [
            {"version": version, "count": count} for version, count in report.versions.items()
        ],
        "recent_bad_topic": [text_of(name) for name in report.bad_topics],
        "recent_too_long_msg": [base64_text(data) for data in report.too_long],
        "rate_limit_discard": [
            {"topic": topic, "count": count} for topic, count in report.rate_limited
        ],
        "discard_topic": _spans(report.topics),
        "possible_duplicate_topic": _spans(report.duplicates),
        "discarded": {name: count for name, count in zip(REASONS, discarded, strict=True) if count},
    }


def discard_lines(report: DiscardReport) -> Iterator[str]:
    """Yield the lines of a report as text."""
    discarded = report.discarded
    yield f"    report ID: {report.report_id}"
    yield f"    start time: {when(report.start_time)}"
    yield f"    malformed msg count: {discarded[MALFORMED]}"
    yield f"    UNIX stream unclean disconnect count: {report.unix_stream_unclean_count}"
    yield f"    TCP unclean disconnect count: {report.tcp_unclean_count}"
    yield f"    unsupported API key msg count: {discarded[API_KEY]}"
    yield f"    unsupported version msg count: {discarded[API_VERSION]}"
    yield f"    bad topic msg count: {discarded[BAD_TOPIC]}"
    yield from _section("recent malformed msg", map(_encoded, report.malformed))
    yield from _section(
        "recent UNIX stream unclean disconnect msg", map(_encoded, report.unix_stream_unclean)
    )
    yield from _section("recent TCP unclean disconnect msg", map(_encoded, report.tcp_unclean))
    yield from _section(
        "unsupported msg version",
        (f"{version} count: {count}" for version, count in report.versions.items()),
    )
    yield from _section(
        "recent bad topic", (bracketed(visible(text_of(name))) for name in report.bad_topics)
    )
    yield from _section("recent too long msg", map(_encoded, report.too_long))
    yield from _section(
        "rate limit discard topic",
        (f"{bracketed(topic)} count {count}" for topic, count in report.rate_limited),
    )
    yield from _section("discard topic", map(_span_text, report.topics))
    yield from _section("possible duplicate topic", map(_span_text, report.duplicates))


def _section(title: str, entries: Iterable[str]) -> Iterator[str]:
    """Yield an empty line and a line per entry, or nothing if there are no entries."""
    for number, entry in enumerate(entries):
        if number == 0:
            yield ""
        yield f"    {title}: {entry}"


def _encoded(data: bytes) -> str:
    return bracketed(base64_text(data))


def _span_text(topic: TopicSpan) -> str:
    return (
        f"{bracketed(topic.topic)} begin [{topic.earliest_ms}] end [{topic.latest_ms}] "
        f"count {topic.messages}"
    )


def _spans(topics: Sequence[TopicSpan]) -> list[dict[str, object]]:
    return [
        {
            "topic": topic.topic,
            "min_timestamp": topic.earliest_ms,
            "max_timestamp": topic.latest_ms,
            "count": topic.messages,
        }
        for topic in topics
    ]
