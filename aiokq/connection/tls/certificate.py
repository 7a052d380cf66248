"""`Certificate`: names and validity of an X.509 certificate, read from its DER form.

OpenSSL has verified the certificates of peers already. Java's form of a distinguished name shows
the DER encoding of some values, which Python's libraries do not keep, so the DER form is read here.

Source: RFC 5280; RFC 2253 as in `sun.security.x509.AVA`, whose names Kafka's ACLs contain.
"""

from __future__ import annotations

import calendar
from collections.abc import Iterator
from typing import Final

from aiokq.core.frozen import frozen

__all__ = ["Certificate", "distinguished_name"]

_SEQUENCE: Final = 0x30
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_SUBJECT_ALT_NAME: Final = bytes.fromhex("551d11")

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The attributes that RFC 2253 names; Java writes others as numbers, with their values in hex."""

_TEXTS: Final = frozenset((12, 19, 20, 22, 27, 30))
"""Tags of the string types that Java writes as text: UTF8, Printable, T61, IA5, General, BMP."""

_ESCAPED: Final = frozenset(',=+<>#;"\\')


class _Malformed(ValueError):
    """The bytes are not a certificate."""


@frozen
class Certificate:
    """An X.509 certificate.

    Attributes:
        subject: the subject's DER form.
        issuer: the issuer's DER form.
        not_after: end of the validity, in seconds since 1970-01-01 UTC.
        alternative_names: the DER forms of the subject's alternative names.
    """

    subject: bytes
    issuer: bytes
    not_after: int
    alternative_names: frozenset[bytes]

    @classmethod
    def of(cls, der: bytes) -> Certificate:
        """Read a certificate.

        Raises:
            ValueError: the bytes are not a certificate.
        """
        try:
            return cls._read(der)
        except IndexError:
            raise _Malformed("not an X.509 certificate") from None

    @classmethod
    def _read(cls, der: bytes) -> Certificate:
        (_, certificate, _), *_ = _elements(der)
        (_, signed, _), *_ = _elements(certificate)
        parts = list(_elements(signed))
        if parts[0][0] == 0xA0:  # the version, which is optional
            del parts[0]
        _, _, (_, _, issuer), (_, validity, _), (_, _, subject), *rest = parts
        (kind, not_after, _) = list(_elements(validity))[1]
        return cls(
            subject=subject,
            issuer=issuer,
            not_after=_seconds(kind, not_after),
            alternative_names=frozenset(_alternative_names(rest)),
        )

    @property
    def name(self) -> str:
        """The subject's distinguished name in Java's form."""
        return distinguished_name(self.subject)


def distinguished_name(der: bytes) -> str:
    """Return a name in the form of RFC 2253, byte for byte as Java's `X500Principal.getName()`.

    Args:
        der: the DER form of the name.

    Raises:
        ValueError: the bytes are not a name.
    """
    try:
        (_, names, _), *_ = _elements(der)
        relative = [
            "+".join(_attribute(each) for _, each, _ in _elements(part))
            for _, part, _ in _elements(names)
        ]
    except IndexError:
        raise _Malformed("not a distinguished name") from None
    return ",".join(reversed(relative))


def _attribute(content: bytes) -> str:
    (_, identifier, _), (tag, value, whole), *_ = _elements(content)
    number = _object_identifier(identifier)
    keyword = _KEYWORDS.get(number)
    if keyword is None or tag not in _TEXTS:
        return f"{keyword or number}=#{whole.hex()}"
    # Java decodes all string types as UTF-8.
    return f"{keyword}={_escaped(value.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    escaped = "".join(f"\\{c}" if c in _ESCAPED else "\\00" if c == "\0" else c for c in text)
    # Java escapes each blank and carriage return at both ends.
    start = len(escaped) - len(escaped.lstrip(" \r"))
    end = len(escaped.rstrip(" \r"))
    return "".join(f"\\{c}" if at < start or at >= end else c for at, c in enumerate(escaped))


def _alternative_names(parts: list[tuple[int, bytes, bytes]]) -> Iterator[bytes]:
    for tag, content, _ in parts:
        if tag != 0xA3:  # the tag of the extensions
            continue
        (_, extensions, _), *_ = _elements(content)
        for _, extension, _ in _elements(extensions):
            (_, identifier, _), *_, (_, value, _) = _elements(extension)
            if identifier == _SUBJECT_ALT_NAME:
                (_, names, _), *_ = _elements(value)
                for _, _, name in _elements(names):
                    yield name


def _elements(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield (tag, content, whole) of each element.

    Raises:
        IndexError, ValueError: the bytes are not DER.
    """
    position = 0
    while position < len(data):
        begin = position
        tag, size = data[position], data[position + 1]
        position += 2
        if tag & 0x1F == 0x1F:
            raise _Malformed("unknown tag")
        if size >= 0x80:
            count = size - 0x80
            if not 0 < count <= 4:
                raise _Malformed("invalid length")
            size = int.from_bytes(data[position : position + count], "big")
            position += count
        end = position + size
        if end > len(data):
            raise _Malformed("element is cut off")
        yield tag, data[position:end], data[begin:end]
        position = end


def _object_identifier(content: bytes) -> str:
    numbers = []
    value = 0
    for byte in content:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _seconds(tag: int, content: bytes) -> int:
    text = content.decode("ascii")
    if tag == _UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text
    elif tag != _GENERALIZED_TIME:
        raise _Malformed("not a time")
    parts = (text[:4], *(text[at : at + 2] for at in range(4, 14, 2)))
    return calendar.timegm(tuple(map(int, parts)))
