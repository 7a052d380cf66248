"""Kafka's text form of a UUID: 22 characters of URL-safe base64."""

from __future__ import annotations

import base64
import uuid

__all__ = ["format_uuid", "parse_uuid"]


def format_uuid(value: uuid.UUID) -> str:
    """Return Kafka's text form of a UUID: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def parse_uuid(text: str) -> uuid.UUID:
    """Parse Kafka's text form of a UUID. Raises ValueError."""
    return uuid.UUID(bytes=base64.b64decode(text + "==", altchars=b"-_", validate=True))
