"""Formats times and untrusted bytes for reports."""

from __future__ import annotations

import time
from base64 import b64encode

__all__ = ["base64_text", "bracketed", "path_text", "text_of", "visible", "when"]


def text_of(data: bytes) -> str:
    """Return bytes as text; bytes that are not UTF-8 become `\\xNN`."""
    return data.decode("utf-8", "backslashreplace")


def path_text(path: str) -> str:
    """Return a path or other address of an input as text; a path may contain any bytes."""
    return text_of(path.encode("utf-8", "surrogateescape"))


def visible(text: str) -> str:
    """Return text as one line: backslashes and unprintable characters become escapes."""
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(
        character
        if character.isprintable() and character != "\\"
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def bracketed(text: str) -> str:
    """Return `LENGTH[TEXT]`, with the length in bytes of UTF-8."""
    return f"{len(text.encode())}[{text}]"


def base64_text(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def when(seconds: float) -> str:
    """Return a time as seconds since 1970 followed by the text of C's `ctime`."""
    whole = int(seconds)
    return f"{whole} {time.ctime(whole)}"
