"""aiokq.broker.log.uuid_text: the text form of Kafka's ids."""

from __future__ import annotations

import uuid

import pytest

from aiokq.broker.log.uuid_text import format_uuid, parse_uuid

TOPIC_ID = uuid.UUID("78e51061-7311-48a3-820b-3d847ed4d57b")


def test_ids_are_spelled_as_kafka_does() -> None:
    """22 characters of URL-safe base64, without padding."""
    assert format_uuid(TOPIC_ID) == "eOUQYXMRSKOCCz2EftTVew"
    assert parse_uuid("eOUQYXMRSKOCCz2EftTVew") == TOPIC_ID
    for text in ("", "x", "eOUQYXMRSKOCCz2EftTVew==", "!" * 22):
        with pytest.raises(ValueError):
            parse_uuid(text)
