"""Parser of decimal numbers in files and options."""

from __future__ import annotations

from typing import Final

__all__ = ["PORT_MAX", "parse_number"]

PORT_MAX: Final = 65535


def parse_number(text: str, most: int) -> int:
    """Parse a number from 0 to `most` that is written in ASCII digits only.

    Raises:
        ValueError: the text is anything else, such as a number with a sign or an underscore. The
            message has the first 40 characters of the text.
    """
    if text.isascii() and text.isdigit():
        digits = text.lstrip("0") or "0"
        if len(digits) <= len(str(most)) and int(digits) <= most:
            return int(digits)
    raise ValueError(f"{text[:40]!r} is not a number from 0 to {most}")
