"""aiokq.broker.security.authentication.key_source: files, addresses, redirects and limits."""

from __future__ import annotations

import http.server
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from aiokq.broker.security.authentication import key_source
from aiokq.broker.security.authentication.key_source import KeySource
from aiokq.core.errors import ConfigError


class Pages(http.server.BaseHTTPRequestHandler):
    """Serves the pages of the server."""

    def do_GET(self) -> None:
        status, headers, body = self.server.pages[self.path]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def server(**pages: tuple[int, dict[str, str], bytes]) -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages) as made:
        made.pages = {f"/{name}": page for name, page in pages.items()}
        thread = threading.Thread(target=made.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{made.server_port}"
        finally:
            made.shutdown()
            thread.join()


def test_a_file_is_read_when_it_has_changed(tmp_path) -> None:
    """A name with blanks is percent-encoded."""
    file = tmp_path / "key set.json"
    file.write_bytes(b"one")
    source = KeySource("s", file.as_uri())
    assert source.is_file
    assert source.read() == b"one"
    assert source.read() is None
    file.write_bytes(b"other")
    assert source.read() == b"other"
    file.unlink()
    with pytest.raises(FileNotFoundError):
        source.read()


def test_a_page_is_fetched() -> None:
    """Each call fetches it again."""
    with server(keys=(200, {}, b"{}")) as url:
        source = KeySource("s", f"{url}/keys")
        assert [source.read(), source.read()] == [b"{}", b"{}"]


def test_a_proxy_gives_no_keys_without_tls(monkeypatch) -> None:
    """http is allowed on this machine only; a proxy is elsewhere and could replace the keys."""
    with server(keys=(200, {}, b"own")) as url, server(keys=(200, {}, b"replaced")) as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.delenv("no_proxy", raising=False)
        assert KeySource("s", f"{url}/keys").read() == b"own"


@pytest.mark.parametrize("target", ["other", "file:///etc/passwd", "ftp://127.0.0.1/x"])
def test_redirects_elsewhere_are_refused(target: str) -> None:
    """A server of keys must not make the broker read files or other servers (CVE-2025-27817)."""
    with server(other=(200, {}, b"{}")) as url:
        place = f"{url}/other" if target == "other" else target
        pages = {"keys": (302, {"Location": place}, b"")}
        with server(**pages) as first, pytest.raises(OSError, match="not allowed"):
            KeySource("s", f"{first}/keys").read()
        with server(**pages) as first:
            source = KeySource("s", f"{first}/keys", [f"{first}/keys", place])
            if target == "other":
                assert source.read() == b"{}"
            else:
                with pytest.raises(OSError):
                    source.read()


@pytest.mark.parametrize("status", [400, 404, 500])
def test_an_error_is_no_key_set(status: int) -> None:
    """The body of an error page is not read as keys."""
    with (
        server(keys=(status, {}, b'{"keys": []}')) as url,
        pytest.raises(OSError, match=str(status)),
    ):
        KeySource("s", f"{url}/keys").read()


def test_a_long_page_is_not_read_to_its_end(tmp_path) -> None:
    """Neither a long file."""
    page = (200, {}, bytes(key_source.MAX_BYTES + 1))
    with server(keys=page) as url, pytest.raises(ValueError, match="more than"):
        KeySource("s", f"{url}/keys").read()
    file = tmp_path / "long"
    file.write_bytes(bytes(key_source.MAX_BYTES + 1))
    with pytest.raises(ValueError, match="more than"):
        KeySource("s", file.as_uri()).read()


def test_a_header_that_never_ends_is_not_awaited(monkeypatch) -> None:
    """Each byte comes in time; the thread of the fetch must not be kept for hours."""
    monkeypatch.setattr(key_source, "LONGEST", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                for _ in range(100):
                    connection.sendall(b"x")
                    time.sleep(0.05)

        thread = threading.Thread(target=answer)
        thread.start()
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            KeySource("s", f"http://127.0.0.1:{listening.getsockname()[1]}/keys").read()
        assert time.monotonic() - began < 3
        thread.join()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "begins with"),
        ("/etc/keys.json", "begins with"),
        ("ftp://host/keys", "begins with"),
        ("https://", "names no host"),
        ("file://other/etc/keys", "another machine"),
        ("file:///nowhere/keys.json", "there is no file"),
        ("https://user:secret@host/keys", "must not have a user name"),
        ("https://[::1/keys", "is not an address"),
        ("ftp://user:secret@host/keys", "must not have a user name"),
        ("file://user:secret@host/keys", "must not have a user name"),
        ("https:///keys?token=secret", "names no host"),
        ("http://host/keys?token=secret", r"sasl\.oauthbearer\.allowed\.urls"),
        ("HTTP://192.0.2.1/keys", r"sasl\.oauthbearer\.allowed\.urls"),
        ("http://127.0.0.1.example.com/keys", r"sasl\.oauthbearer\.allowed\.urls"),
    ],
)
def test_wrong_addresses_end_the_start(url: str, message: str) -> None:
    """The message names the setting, and shows no password."""
    with pytest.raises(ConfigError, match=message) as refused:
        KeySource("the.setting", url)
    assert "the.setting" in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8080", "127.1.2.3", "[::1]"])
def test_plain_http_is_for_this_machine_and_for_listed_addresses(host: str) -> None:
    """Over http, anybody on the way could replace the keys."""
    assert str(KeySource("s", f"http://{host}/keys")) == f"http://{host}/keys"
    listed = "http://keys.internal/keys"
    assert str(KeySource("s", listed, [listed])) == listed


def test_a_refused_address_is_shown_without_secrets() -> None:
    """The list may name other addresses."""
    for url in ("https://user:secret@host/keys", "https://host/keys?token=secret"):
        with pytest.raises(ConfigError) as refused:
            KeySource("s", url, ["https://other/keys"])
        assert "secret" not in str(refused.value)


def test_the_address_must_be_allowed_if_there_is_a_list() -> None:
    """`sasl.oauthbearer.allowed.urls`."""
    with pytest.raises(ConfigError, match=r"allowed\.urls"):
        KeySource("s", "https://host/keys", ["https://other/keys"])
    assert str(KeySource("s", "https://host/keys?token=secret")) == "https://host/keys"
