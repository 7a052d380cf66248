"""Distinguished names as Java writes them, and what else is read of certificates."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from aiokq.connection.tls.certificate import Certificate, distinguished_name
from tests.peers.pki import Pki

GOLDEN = Path(__file__).parents[3] / "golden" / "tls" / "distinguished_names.json"


def test_names_are_those_of_java() -> None:
    """ACLs name principals: each byte counts. The file was written by Java 17."""
    names = json.loads(GOLDEN.read_text())
    assert len(names) > 15
    for case in names:
        assert distinguished_name(bytes.fromhex(case["der"])) == case["name"], case["what"]


def test_a_certificate_has_name_end_and_alternative_names() -> None:
    """They decide about principals, warnings and renewals."""
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.COUNTRY_NAME, "US"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Ex, Inc"),
            x509.NameAttribute(NameOID.COMMON_NAME, "alice"),
        ]
    )
    pki = Pki()
    identity = pki.issue(name, "localhost", "::1", days=3)
    certificate = Certificate.of(identity.der)
    assert certificate.name == "CN=alice,O=Ex\\, Inc,C=US"
    end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=3)
    assert abs(certificate.not_after - end.timestamp()) < 60
    assert len(certificate.alternative_names) == 2
    assert certificate.issuer == pki.root.subject.public_bytes()


def test_a_date_after_2049_is_read() -> None:
    """X.509 writes such dates in another form."""
    certificate = Certificate.of(Pki().issue(days=365 * 40).der)
    assert certificate.not_after > datetime.datetime(2065, 1, 1, tzinfo=datetime.UTC).timestamp()


@pytest.mark.parametrize("cut", [0, 1, 2, 10, 50, 100, 200, -1])
def test_cut_bytes_are_a_value_error(cut: int) -> None:
    """A file may be read while it is written."""
    with pytest.raises(ValueError):
        Certificate.of(Pki().issue().der[:cut])


def test_no_bytes_give_another_error_than_value_error() -> None:
    """Certificates come from strangers; OpenSSL checks them first, but not our reading."""
    der = bytearray(Pki().issue().der)
    for position in range(len(der)):
        for value in (0x00, 0x1F, 0x80, 0x84, 0xFF):
            changed = bytes(der[:position]) + bytes([value]) + bytes(der[position + 1 :])
            try:
                _ = Certificate.of(changed).name
            except ValueError:
                pass
