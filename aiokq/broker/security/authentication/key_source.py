"""`KeySource`: reads the keys of tokens from a file or from a URL, in a thread.

Only the configured URL and the URLs in `sasl.oauthbearer.allowed.urls` are read. A redirect to any
other URL, or to another protocol, is refused. Plain http is allowed only for loopback addresses and
listed URLs, because somebody on the network could replace the keys.

Tests: ``tests/unit/broker/security/authentication/test_key_source.py``.
"""

from __future__ import annotations

import ipaddress
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Collection
from functools import partial
from http.client import HTTPMessage
from typing import IO, Any, Final

from aiokq.connection.timed_answer import TimedAnswer
from aiokq.core.errors import ConfigError

__all__ = ["KeySource"]

MAX_BYTES: Final = 1024 * 1024
"""Length of the longest key set that is read."""

SILENCE: Final = 5.0
"""Seconds without an answer after which a fetch fails."""

LONGEST: Final = 15.0
"""Seconds after which a fetch fails in any case."""

SCHEMES: Final = ("https", "http", "file")


class KeySource:
    """Reads a key set from its URL.

    Args:
        setting: the name of the setting with the URL, for errors.
        url: a URL with the scheme https, http or file.
        allowed: if not empty, `url` must be one of these URLs, and redirects to them are followed.

    Attributes:
        is_file: whether the URL names a file.

    Raises:
        ConfigError: the URL is malformed, not allowed or not encrypted, or names a file that does
            not exist.
    """

    def __init__(self, setting: str, url: str, allowed: Collection[str] = ()) -> None:
        try:
            parsed = urllib.parse.urlsplit(url)
            scheme, host = parsed.scheme.lower(), parsed.hostname
        except ValueError:
            raise ConfigError(f"{setting} is not an address") from None
        if parsed.username is not None or parsed.password is not None:
            raise ConfigError(f"{setting}: the address must not have a user name or password")
        shown = parsed._replace(query="", fragment="").geturl()
        if scheme not in SCHEMES:
            raise ConfigError(
                f"{setting}: write an address that begins with https://, http:// or file://"
            )
        if allowed and url not in allowed:
            raise ConfigError(f"{setting}: {shown} is not in sasl.oauthbearer.allowed.urls")
        self.is_file = scheme == "file"
        if self.is_file and host not in (None, "", "localhost"):
            raise ConfigError(f"{setting}: the file of {shown} is on another machine")
        if not self.is_file and not host:
            raise ConfigError(f"{setting}: {shown} names no host")
        if scheme == "http" and not allowed and not _is_loopback(host or ""):
            raise ConfigError(
                f"{setting}: {shown} is not encrypted, so the keys could be replaced on the way: "
                "use https, or list the address in sasl.oauthbearer.allowed.urls"
            )
        self._url = url
        self._shown = shown
        self._allowed = frozenset(allowed)
        # Read a loopback address without a proxy, which could replace keys fetched without TLS.
        on_loopback = scheme == "http" and _is_loopback(host or "")
        self._proxies: dict[str, str] | None = {} if on_loopback else None
        self._path = urllib.request.url2pathname(parsed.path) if self.is_file else ""
        self._version: tuple[int, int, int] | None = None
        if self.is_file and not os.path.isfile(self._path):
            raise ConfigError(f"{setting}: there is no file {self._path}")

    def __str__(self) -> str:
        return self._shown

    def read(self) -> bytes | None:
        """Return the key set; None for a file that has not changed since the last call.

        Raises:
            OSError, ValueError: the key set cannot be read, or is too large.
        """
        return self._read_file() if self.is_file else self._fetch()

    def _read_file(self) -> bytes | None:
        with open(self._path, "rb") as file:
            stat = os.fstat(file.fileno())
            version = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if version == self._version:
                return None
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise ValueError(f"the file has more than {MAX_BYTES} bytes")
        self._version = version
        return text

    def _fetch(self) -> bytes:
        opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.ProxyHandler(self._proxies),
            _Http(),
            _Https(),
            urllib.request.HTTPDefaultErrorHandler(),
            urllib.request.HTTPErrorProcessor(),
            _Redirects(self._allowed),
        ):
            opener.add_handler(handler)
        request = urllib.request.Request(self._url, headers={"Accept": "application/json"})
        deadline = time.monotonic() + LONGEST
        parts: list[bytes] = []
        nbytes = 0
        with opener.open(request, timeout=SILENCE) as response:
            while part := response.read1(65_536):
                parts.append(part)
                nbytes += len(part)
                if nbytes > MAX_BYTES:
                    raise ValueError(f"the answer has more than {MAX_BYTES} bytes")
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the answer takes more than {LONGEST:g} s")
        return b"".join(parts)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _TimedConnections(urllib.request.AbstractHTTPHandler):
    """Makes connections whose responses have a time limit."""

    def do_open(self, http_class: Any, req: urllib.request.Request, **arguments: Any) -> Any:
        def connection(*args: Any, **kwargs: Any) -> Any:
            made = http_class(*args, **kwargs)
            made.response_class = partial(TimedAnswer, SILENCE, LONGEST)
            return made

        return super().do_open(connection, req, **arguments)


class _Http(_TimedConnections, urllib.request.HTTPHandler):
    pass


class _Https(_TimedConnections, urllib.request.HTTPSHandler):
    pass


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to allowed addresses only."""

    def __init__(self, allowed: Collection[str]) -> None:
        self._allowed = allowed

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if newurl not in self._allowed:
            raise urllib.error.HTTPError(
                req.full_url, code, "a redirect to an address that is not allowed", headers, fp
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)
