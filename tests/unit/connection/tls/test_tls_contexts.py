"""Renewal: changed files are taken up, half-written and unmatched ones are not; expiry is told."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from aiokq.connection.tls import stores
from aiokq.connection.tls.contexts import Made, client_context, server_context
from aiokq.connection.tls.tls_contexts import SETTLED_SECONDS, TlsContexts
from aiokq.connection.tls.tls_settings import TlsSettings
from aiokq.core.errors import ConfigError
from tests.peers.pki import Identity, Pki

PKI = Pki()
DAY = 24 * 3600


class HandClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def timestamp_ms(self) -> int:
        return int(self.now * 1000)

    def thread_time(self) -> float:
        return self.now


def replace(path: Path, text: str) -> None:
    """Replace a file as tools do; the clock of the file system may be coarse."""
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return PKI.issue().write(tmp_path, "node")


def contexts(store: Path, **settings: object) -> TlsContexts:
    return TlsContexts(
        server_context,
        TlsSettings(
            keystore_type="PEM",
            keystore_location=str(store),
            keeps_identity=True,
            **settings,  # type: ignore[arg-type]
        ),
        "listener SSL",
    )


def served_by(context: ssl.SSLContext) -> bytes:
    """Return the certificate that a server with this context shows."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(back, there)
    far = context.wrap_bio(there, back, server_side=True)
    for end in (near, far, near):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            pass
    shown = near.getpeercert(binary_form=True)
    assert shown is not None
    return shown


def content(identity: Identity) -> str:
    return identity.key + identity.chain


def test_a_replaced_file_is_taken_up(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The former context is still that of open connections."""
    tls = contexts(store)
    former = tls.context
    assert not tls.renew()
    new = PKI.issue(days=40)
    replace(store, content(new))
    with caplog.at_level(logging.INFO):
        assert tls.renew()
    assert tls.context is not former
    assert served_by(tls.context) == new.der
    assert tls.expires_at is not None
    assert "taken up: listener SSL" in caplog.text
    assert not tls.renew()


@pytest.mark.parametrize(("number", "is_read_again"), [(errno.EMFILE, True), (errno.EACCES, False)])
def test_files_that_could_not_be_opened_are_read_again(
    number: int, is_read_again: bool, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a change of the files, if the error is none of theirs.

    Regression: a certificate that was renewed while too many files were open was never used.
    """

    def fail(*arguments: object) -> None:
        raise OSError(number, os.strerror(number))

    tls = contexts(store)
    new = PKI.issue()
    replace(store, content(new))
    with monkeypatch.context() as patched:
        patched.setattr(stores, "open", fail, raising=False)
        assert not tls.renew()
    assert tls.renew() is is_read_again
    assert (served_by(tls.context) == new.der) is is_read_again


def test_a_rewritten_file_is_taken_up(store: Path) -> None:
    """Not every tool replaces files."""
    tls = contexts(store)
    new = PKI.issue()
    store.write_text(content(new))
    os.utime(store, ns=(1, 1))
    assert tls.renew()
    assert served_by(tls.context) == new.der


@pytest.mark.parametrize(
    "broken",
    [
        lambda new: "",
        lambda new: content(new)[:100],
        lambda new: content(new)[:-30],
        lambda new: new.key,
        lambda new: new.chain,
        lambda new: PKI.issue().key + new.chain,
        lambda new: content(new).replace("MII", "!!!", 1),
        lambda new: content(PKI.issue("somebody else")),
        lambda new: content(PKI.issue("localhost", "localhost")),
    ],
    ids=["empty", "begun", "cut", "no certificate", "no key", "unmatched", "damaged",
         "another name", "fewer names"],
)  # fmt: skip
def test_a_file_that_cannot_be_used_keeps_the_former_pair_and_warns_once(
    broken: Callable[[Identity], str], store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A renewal writes two files, or one in several steps."""
    tls = contexts(store)
    former = tls.context
    shown = served_by(former)
    new = PKI.issue()
    replace(store, broken(new))
    with caplog.at_level(logging.WARNING):
        assert not tls.renew()
        assert not tls.renew()
    assert tls.context is former
    assert served_by(tls.context) == shown
    assert caplog.text.count("the former ones stay in use: listener SSL") == 1
    assert content(new)[60:100] not in caplog.text
    replace(store, content(new))
    assert tls.renew()
    assert served_by(tls.context) == new.der


def test_a_removed_file_keeps_the_former_pair(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The directory may be mounted again later."""
    tls = contexts(store)
    former = tls.context
    text = store.read_text()
    store.unlink()
    with caplog.at_level(logging.WARNING):
        assert not tls.renew()
    assert tls.context is former
    assert "No such file" in caplog.text
    store.write_text(text)
    assert tls.renew()


def test_changes_of_names_can_be_allowed(store: Path) -> None:
    """Kafka's `ssl.allow.dn.changes` and `ssl.allow.san.changes`."""
    tls = contexts(store, allow_dn_changes=True, allow_san_changes=True)
    new = PKI.issue("somebody else", "other.example")
    replace(store, content(new))
    assert tls.renew()
    assert served_by(tls.context) == new.der


def test_more_alternative_names_are_always_allowed(store: Path) -> None:
    """SslTransportLayerTest: a new SAN."""
    tls = contexts(store)
    replace(store, content(PKI.issue("localhost", "localhost", "127.0.0.1", "new.example")))
    assert tls.renew()


def test_a_changed_trust_store_is_taken_up(tmp_path: Path) -> None:
    """An authority is replaced before the certificates."""
    path = tmp_path / "ca.pem"
    path.write_text(PKI.trusted)
    tls = TlsContexts(
        client_context,
        TlsSettings(truststore_type="PEM", truststore_location=str(path)),
        "client",
    )
    assert len(tls.context.get_ca_certs()) == 1
    replace(path, PKI.trusted + Pki("next").trusted)
    assert tls.renew()
    assert len(tls.context.get_ca_certs()) == 2


def test_files_that_are_wrong_at_the_start_are_an_error(tmp_path: Path) -> None:
    """There is no former pair to keep."""
    with pytest.raises(ConfigError, match="No such file"):
        contexts(tmp_path / "nowhere")


async def test_the_files_are_looked_at_now_and_then(store: Path) -> None:
    """Not at every connection."""
    clock = HandClock()
    tls = contexts(store)
    former = await tls.current(clock, None)
    replace(store, content(PKI.issue()))
    assert await tls.current(clock, None) is former
    assert tls.pause(clock) == tls.check_seconds
    clock.now += tls.check_seconds
    assert await tls.current(clock, None) is former  # the file may not be complete yet
    assert tls.pause(clock) == SETTLED_SECONDS
    clock.now += tls.pause(clock)
    assert await tls.current(clock, None) is not former


async def test_a_half_written_trust_store_is_not_used(tmp_path: Path) -> None:
    """One that ends between two certificates looks complete, and would shut clients out."""
    path = tmp_path / "ca.pem"
    path.write_text(PKI.trusted)
    tls = TlsContexts(
        client_context,
        TlsSettings(truststore_type="PEM", truststore_location=str(path)),
        "client",
    )
    clock = HandClock()

    async def trusted() -> int:
        clock.now += max(tls.pause(clock), 0.5)
        return len((await tls.current(clock, None)).get_ca_certs())

    path.write_text("")
    assert await trusted() == 1
    with path.open("a") as file:
        for number in range(4):
            file.write(Pki(f"authority {number}").trusted)
            file.flush()
            assert await trusted() == 1
    assert await trusted() == 4


async def test_files_that_changed_long_ago_are_used_at_once(store: Path) -> None:
    """The certificate of a client that has not connected since may have expired."""
    clock = HandClock()
    tls = contexts(store)
    former = await tls.current(clock, None)
    new = PKI.issue()
    replace(store, content(new))
    clock.now += 1000
    os.utime(store, (clock.now - SETTLED_SECONDS, clock.now - SETTLED_SECONDS))
    assert await tls.current(clock, None) is not former
    assert served_by(tls.context) == new.der


async def test_connections_at_the_same_time_renew_once(store: Path) -> None:
    """Changed files are read in a thread."""

    class Threads:
        async def run(self, fn: Callable[..., object], *args: object) -> object:
            return await asyncio.to_thread(fn, *args)

    clock = HandClock()
    tls = contexts(store)
    replace(store, content(PKI.issue()))
    os.utime(store, (1, 1))
    first, *others = await asyncio.gather(*(tls.current(clock, Threads()) for _ in range(5)))  # type: ignore[arg-type]
    assert served_by(tls.context)
    assert first is tls.context
    assert len(others) == 4


def test_a_change_does_not_wait_for_files_that_are_read(store: Path, tmp_path: Path) -> None:
    """Its caller is the event loop. What is read meanwhile belongs to the former settings.

    Regression: a renewal held a lock while it read and decrypted stores.
    """
    tls = contexts(store)
    other = PKI.issue()
    changed = tls.prepare(contexts(other.write(tmp_path, "other"))._settings)  # type: ignore[arg-type]
    make, changes = tls._make, []

    def make_slowly(settings: TlsSettings) -> Made:
        made = make(settings)
        thread = threading.Thread(target=tls.change, args=(changed,))
        thread.start()
        thread.join(10)
        changes.append(thread.is_alive())
        return made

    tls._make = make_slowly
    replace(store, content(PKI.issue()))
    assert not tls.renew()
    assert changes == [False]
    assert served_by(tls.context) == other.der


def test_of_two_renewals_that_overlap_the_newer_files_win(store: Path) -> None:
    """Although the other one is ready later."""
    tls = contexts(store)
    make, newer = tls._make, PKI.issue()

    def make_meanwhile(settings: TlsSettings) -> Made:
        tls._make = make
        made = make(settings)
        replace(store, content(newer))
        assert tls.renew()
        return made

    tls._make = make_meanwhile
    replace(store, content(PKI.issue()))
    assert not tls.renew()
    assert served_by(tls.context) == newer.der
    assert not tls.renew()


def test_expiry_is_warned_of_once_a_day(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    """14 days ahead, and as an error afterwards."""
    tls = contexts(store)
    end = tls.expires_at
    assert end is not None
    with caplog.at_level(logging.WARNING):
        tls.check_expiry(end - 15 * DAY)
        assert caplog.records == []
        for hour in range(0, 48, 6):
            tls.check_expiry(end - 14 * DAY + hour * 3600)
        assert 2 <= len(caplog.records) <= 3
        assert "certificate expires in 14 days: listener SSL" in caplog.text
        tls.check_expiry(end + 1)
    assert caplog.records[-1].levelno == logging.ERROR
    assert "has expired" in caplog.text


def test_a_given_context_is_left_alone() -> None:
    """Its owner may load new files into it."""
    given = ssl.create_default_context()
    tls = TlsContexts.fixed(given)
    assert tls.context is given
    assert tls.expires_at is None
    assert not tls.renew()
