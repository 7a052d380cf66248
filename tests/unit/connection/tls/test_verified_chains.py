"""Which sessions of TLS 1.2 may be resumed on a server that asks for certificates."""

from __future__ import annotations

import ssl
import time
from pathlib import Path

import pytest

from aiokq.connection.tls import verified_chains
from aiokq.connection.tls.verified_chains import VerifiedChains
from tests.peers.pki import Pki, context_of

DAY = 24 * 3600
PKI = Pki(intermediate=True)  # its authorities are valid for 30 days
NODE = PKI.issue()


class Ends:
    """A server and a client that connect again and again, with one context each."""

    def __init__(self, directory: Path, *, days: float = 20, auth: ssl.VerifyMode) -> None:
        self.server = context_of(NODE, PKI.trusted, directory, server=True)
        self.server.verify_mode = auth
        self.directory = directory
        self.chains = VerifiedChains()
        self.client = self.client_of("alice", days)

    def client_of(self, name: str, days: float) -> ssl.SSLContext:
        client = context_of(PKI.issue(name, days=days), PKI.trusted, self.directory, server=False)
        client.maximum_version = ssl.TLSVersion.TLSv1_2
        return client

    def connect(
        self, session: ssl.SSLSession | None = None, client: ssl.SSLContext | None = None
    ) -> tuple[ssl.SSLSession, bool]:
        """Return the client's session, and whether it was resumed."""
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        near = (client or self.client).wrap_bio(
            back, there, server_hostname="localhost", session=session
        )
        far = self.server.wrap_bio(there, back, server_side=True)
        for _ in range(3):
            for end in (near, far):
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    pass
        self.chains.check(far)
        assert near.session is not None
        return near.session, bool(near.session_reused)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of `verified_chains`; OpenSSL's is the real one."""
    times = [time.time()]

    class Clock:
        @staticmethod
        def time() -> float:
            return times[0]

    monkeypatch.setattr("aiokq.connection.tls.verified_chains.time", Clock)
    return times


def test_a_session_is_resumed_while_the_certificate_is_valid(
    tmp_path: Path, now: list[float]
) -> None:
    ends = Ends(tmp_path, auth=ssl.CERT_REQUIRED)
    session, resumed = ends.connect()
    assert not resumed
    now[0] += 20 * DAY - 60
    assert ends.connect(session)[1]
    now[0] += 120
    with pytest.raises(ssl.SSLError, match="has expired since its session began"):
        ends.connect(session)


def test_a_session_ends_with_the_authority_too(tmp_path: Path, now: list[float]) -> None:
    """A full handshake would fail from then on."""
    ends = Ends(tmp_path, days=90, auth=ssl.CERT_REQUIRED)
    session, _ = ends.connect()
    now[0] += 29 * DAY
    assert ends.connect(session)[1]
    now[0] += 2 * DAY
    with pytest.raises(ssl.SSLError, match="has expired since its session began"):
        ends.connect(session)


def test_the_client_of_a_forgotten_certificate_needs_a_full_handshake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that many certificates of one authority do not fill the memory."""
    monkeypatch.setattr(verified_chains, "MAX_CERTIFICATES", 1)
    ends = Ends(tmp_path, auth=ssl.CERT_REQUIRED)
    session, _ = ends.connect()
    bob = ends.client_of("bob", 20)
    ends.connect(client=bob)
    with pytest.raises(ssl.SSLError, match="must do a full handshake"):
        ends.connect(session)
    again, resumed = ends.connect()
    assert not resumed
    assert ends.connect(again)[1]


def test_a_certificate_that_cannot_be_read_is_refused_as_tls_refuses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: after the error, the handshake stayed open until its time limit."""

    def refuse(der: bytes) -> verified_chains.Certificate:
        raise ValueError("not a certificate")

    ends = Ends(tmp_path, auth=ssl.CERT_REQUIRED)
    monkeypatch.setattr(verified_chains.Certificate, "of", refuse)
    with pytest.raises(ssl.SSLError, match="cannot be read: not a certificate"):
        ends.connect()


def test_a_client_without_a_certificate_may_resume(tmp_path: Path) -> None:
    """Where certificates are optional; it has no name that could end."""
    ends = Ends(tmp_path, auth=ssl.CERT_OPTIONAL)
    ends.client = ssl.create_default_context(cadata=PKI.trusted)
    ends.client.maximum_version = ssl.TLSVersion.TLSv1_2
    session, _ = ends.connect()
    assert ends.connect(session)[1]
