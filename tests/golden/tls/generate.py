"""Writes distinguished_names.json: names of certificates, and how Java 17 writes them.

Run: python -m tests.golden.tls.generate
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

HERE = Path(__file__).parent

UTF8, PRINTABLE, T61, IA5, UNIVERSAL, BMP, NUMERIC, VISIBLE, GENERAL = (
    12, 19, 20, 22, 28, 30, 18, 26, 27,
)  # fmt: skip
OIDS = {
    "CN": "550403",
    "SN": "550404",
    "serialNumber": "550405",
    "C": "550406",
    "L": "550407",
    "ST": "550408",
    "STREET": "550409",
    "O": "55040a",
    "OU": "55040b",
    "title": "55040c",
    "postalCode": "550411",
    "dnQualifier": "55042e",
    "UID": "0992268993f22c640101",
    "DC": "0992268993f22c640119",
    "email": "2a864886f70d010901",
    "large": "88378fffffff7f",
}


def tlv(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 128:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def attribute(kind: str, value: str | bytes, tag: int = UTF8) -> bytes:
    content = value.encode() if isinstance(value, str) else value
    return tlv(0x30, tlv(6, bytes.fromhex(OIDS[kind])) + tlv(tag, content))


def name(*parts: bytes | list[bytes]) -> bytes:
    sets = [b"".join(part) if isinstance(part, list) else part for part in parts]
    return tlv(0x30, b"".join(tlv(0x31, part) for part in sets))


CASES = {
    "plain": name(attribute("C", "US", PRINTABLE), attribute("O", "Ex"), attribute("CN", "alice")),
    "comma": name(attribute("O", "Ex, Inc"), attribute("CN", "alice")),
    "every named attribute": name(
        *(attribute(each, each) for each in ("C", "ST", "L", "STREET", "O", "OU", "CN")),
        attribute("DC", "example", IA5),
        attribute("UID", "u1"),
    ),
    "every escaped character": name(attribute("CN", ',=+<>#;"\\')),
    "hash in front": name(attribute("CN", "#abc")),
    "hash inside": name(attribute("CN", "a#b=c")),
    "blanks at the ends": name(attribute("CN", "  a b  ")),
    "only blanks": name(attribute("CN", "   ")),
    "returns at the ends": name(attribute("CN", "\r a\r")),
    "other white space": name(attribute("CN", "\ta\n")),
    "null character": name(attribute("CN", "a\0b")),
    "null characters at the ends": name(attribute("CN", "\0a\0")),
    "control characters": name(attribute("CN", "a\x01\x7fb")),
    "beyond ASCII": name(attribute("CN", "Łukasz Ünal 🦆")),
    "malformed UTF-8": name(attribute("CN", b"a\xff\xc3b\xe2\x82")),
    "T61 of Latin-1": name(attribute("CN", b"M\xfcller", T61)),
    "BMP": name(attribute("CN", "Ab".encode("utf-16-be"), BMP)),
    "universal": name(attribute("CN", "A".encode("utf-32-be"), UNIVERSAL)),
    "numeric": name(attribute("CN", "12", NUMERIC)),
    "visible": name(attribute("CN", "ab", VISIBLE)),
    "general": name(attribute("CN", "ab", GENERAL)),
    "mail": name(attribute("email", "a@b.c", IA5), attribute("CN", "alice")),
    "attributes without a name": name(
        *(
            attribute(each, "x,y", PRINTABLE)
            for each in ("SN", "serialNumber", "title", "postalCode", "dnQualifier", "large")
        )
    ),
    "two values in one part": name(
        attribute("O", "Ex"), [attribute("CN", "a"), attribute("UID", "b,c")]
    ),
    "two values in the other order": name([attribute("UID", "b"), attribute("CN", "a")]),
    "repeated": name(attribute("OU", "a"), attribute("OU", "b"), attribute("OU", "c")),
    "empty value": name(attribute("CN", "")),
    "no parts": name(),
    "long": name(attribute("CN", "x" * 300)),
}


def main() -> None:
    done = subprocess.run(
        ["java", str(HERE / "Names.java")],
        input="".join(f"{der.hex()}\n" for der in CASES.values()),
        capture_output=True,
        text=True,
        check=True,
    )
    names = [bytes.fromhex(line).decode() for line in done.stdout.splitlines()]
    rows = [
        {"what": what, "der": der.hex(), "name": java}
        for (what, der), java in zip(CASES.items(), names, strict=True)
    ]
    path = HERE / "distinguished_names.json"
    path.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
