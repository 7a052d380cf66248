"""Checks that text fits into a string of Kafka's protocol: valid UTF-8, at most 32,767 bytes."""

from __future__ import annotations

from aiokq.core.limits import INT16_MAX

__all__ = ["check_text", "check_utf8", "response_text"]


def check_utf8(text: str) -> None:
    """Raise ValueError for text that UTF-8 cannot encode; the error does not show the text."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise ValueError(
            f"character {error.start} is U+{code:04X}, half of a surrogate pair, which UTF-8 "
            "cannot hold; decode bytes by bytes.decode(), not by os.fsdecode()"
        ) from None


def check_text(text: str) -> None:
    """Raise ValueError for text that no request can hold; the error does not show the text."""
    check_utf8(text)
    size = len(text.encode())
    if size > INT16_MAX:
        raise ValueError(f"{size:,} bytes of UTF-8; at most {INT16_MAX:,} fit into a request")


def response_text(text: str) -> str:
    """Return text, such as a path, as a response can hold it: as UTF-8 of at most 32,767 bytes.

    Python represents bytes of a path that are not UTF-8 as lone surrogates; these are replaced by
    escapes (`\\udcff`). Longer text is truncated.
    """
    return text.encode("utf-8", "backslashreplace")[:INT16_MAX].decode("utf-8", "ignore")
