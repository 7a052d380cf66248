"""Tokens from an OAuth or OpenID Connect server: client credentials, and JWT bearer assertions.

Redirects are never followed. An error contains only the name and the description of the server's
error, and never the client's secret.

Source: RFC 6749 section 4.4, RFC 7523; Kafka ``HttpJwtRetriever.java``,
``ClientCredentialsRequestFormatter.java``, ``JwtBearerRequestFormatter.java``.
Tests: ``tests/unit/connection/sasl/test_token_endpoint.py``.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from email.message import Message
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import quote_plus, urlsplit

from aiokq.connection.sasl.jwt_lifetime import lifetime_of
from aiokq.connection.sasl.oauth_token import OAuthToken
from aiokq.connection.sasl.token_sources import checked_token
from aiokq.connection.timed_answer import TimedAnswer
from aiokq.core.errors import AuthenticationFailed, ConfigError, ConnectionLost
from aiokq.core.frozen import frozen

if TYPE_CHECKING:
    from aiokq.core.clock import Clock
    from aiokq.core.offload import Offload

__all__ = [
    "EndpointTokens",
    "Form",
    "HttpLimits",
    "bearer_form",
    "check_url",
    "client_credentials_form",
    "is_plain_on_loopback",
    "shown_url",
]

_NOT_RETRIED: Final = frozenset((*range(400, 408), *range(409, 416), 501, 505))
"""HTTP statuses after which a request is not repeated, as in Kafka."""

_MAX_BYTES: Final = 1 << 20
_MAX_SHOWN: Final = 200
LONGEST: Final = 30.0
"""Seconds after which a request fails if the answer is not complete.

If `HttpLimits.read` is longer, it applies instead.

Without this limit, a server that sends a byte now and then would keep all logins waiting.
"""

_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


@frozen
class HttpLimits:
    """Time limits of requests for tokens, in seconds; Kafka's settings `sasl.login.*`.

    Attributes:
        connect: `sasl.login.connect.timeout.ms`.
        read: `sasl.login.read.timeout.ms`.
        backoff: `sasl.login.retry.backoff.ms`, which doubles with each retry.
        backoff_total: `sasl.login.retry.backoff.max.ms`: no retry begins after this time.
    """

    connect: float = 10.0
    read: float = 10.0
    backoff: float = 0.1
    backoff_total: float = 10.0


@frozen
class Form:
    """A request for a token.

    Attributes:
        body: the body of the POST request.
        headers: headers in addition to those of every request.
    """

    body: str
    headers: Mapping[str, str]


class EndpointTokens:
    """Tokens of an authorization server.

    Args:
        url: the server's token endpoint; the caller has checked it by `check_url`.
        form: returns the request; called in a thread.
        offload: runs the requests.
        clock: the clock from which expiry times are computed.
        limits: time limits and retries.
        secrets: texts that must not appear in errors.
    """

    def __init__(
        self,
        url: str,
        form: Callable[[], Form],
        *,
        offload: Offload,
        clock: Clock,
        limits: HttpLimits,
        secrets: Sequence[str] = (),
    ) -> None:
        self._url = url
        self._shown = shown_url(url)
        self._form = form
        self._offload = offload
        self._clock = clock
        self._limits = limits
        self._secrets = secrets

    def __repr__(self) -> str:
        return f"<EndpointTokens of {urlsplit(self._url).hostname}>"

    async def fetch(self) -> OAuthToken:
        """Request a token, with retries.

        Raises:
            AuthenticationFailed: the server refuses the request, or its answer has no token.
            ConnectionLost: the server could not be reached, or had an error.
        """
        limits = self._limits
        loop = asyncio.get_running_loop()
        began = loop.time()
        pause = limits.backoff
        while True:
            try:
                return self._token(await self._offload.run(self._post))
            except ConnectionLost:
                if loop.time() + pause - began > limits.backoff_total:
                    raise
            await asyncio.sleep(pause)
            pause *= 2

    def _post(self) -> bytes:
        """Send one request and return the body of the answer.

        Raises:
            AuthenticationFailed: no retry can help.
            ConnectionLost: a retry may help.
        """
        form = self._form()
        request = urllib.request.Request(
            self._url,
            form.body.encode(),
            {
                "Accept": "application/json",
                "Cache-Control": "no-cache",
                "Content-Type": "application/x-www-form-urlencoded",
                **form.headers,
            },
            method="POST",
        )
        handlers: list[urllib.request.BaseHandler] = [
            _NoRedirect(),
            _Http(self._limits.read),
            _Https(self._limits.read),
        ]
        if is_plain_on_loopback(self._url):
            # A proxy is on another machine, and the secret would be sent to it in clear text.
            handlers.append(urllib.request.ProxyHandler({}))
        opener = urllib.request.build_opener(*handlers)
        try:
            with opener.open(request, timeout=self._limits.connect) as answer:
                body: bytes = answer.read(_MAX_BYTES + 1)
                status = answer.status
        except urllib.error.HTTPError as error:
            with error:
                told = self._told(error)
            text = f"the token endpoint {self._shown} answered {error.code}{told}"
            if error.code in _NOT_RETRIED or 300 <= error.code < 400:
                raise AuthenticationFailed(text) from None
            raise ConnectionLost(text, may_have_been_written=False) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise ConnectionLost(
                f"the token endpoint {self._shown} cannot be reached: "
                f"{str(reason) or type(reason).__name__}",
                may_have_been_written=False,
            ) from None
        if status not in (200, 201) or not body:
            raise ConnectionLost(
                f"the token endpoint {self._shown} answered {status} without a token",
                may_have_been_written=False,
            )
        if len(body) > _MAX_BYTES:
            raise AuthenticationFailed(f"the token endpoint {self._shown} sent more than 1 MiB")
        return body

    def _token(self, body: bytes) -> OAuthToken:
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        if isinstance(answer, dict):
            for name in ("access_token", "id_token"):
                value = answer.get(name)
                if isinstance(value, str) and value.strip():
                    return checked_token(
                        OAuthToken(value.strip(), self._ends(value, answer.get("expires_in")))
                    )
        raise AuthenticationFailed(f"the answer of the token endpoint {self._shown} has no token")

    def _ends(self, token: str, seconds: object) -> float | None:
        """Return a token's expiry in seconds since 1970; None if it is unknown or in the JWT."""
        if lifetime_of(token.strip())[1] is not None:
            return None
        if isinstance(seconds, str) and seconds.isascii() and seconds.isdecimal():
            seconds = int(seconds[:10])
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
            return None
        return self._clock.timestamp_ms() / 1000 + min(seconds, 1e9)

    def _told(self, error: urllib.error.HTTPError) -> str:
        """Return the name and description of the server's error, without secrets."""
        try:
            answer = json.loads(error.read(_MAX_BYTES))
        except (ValueError, RecursionError, OSError, http.client.HTTPException):
            return ""
        if not isinstance(answer, dict):
            return ""
        texts = [
            answer.get(name) for name in ("error", "error_description", "errorCode", "errorSummary")
        ]
        shown = " - ".join(text for text in texts if isinstance(text, str))
        for secret in self._secrets:
            shown = shown.replace(secret, "***")
        shown = "".join(c if c.isprintable() else " " for c in shown)[:_MAX_SHOWN]
        return f": {shown}" if shown else ""


def client_credentials_form(
    client_id: str, client_secret: str, scope: str | None, *, urlencode: bool
) -> Form:
    """Return the request of RFC 6749 section 4.4, with the client's secret in a header.

    Args:
        urlencode: whether id, secret and scope are URL-encoded, as RFC 6749 demands. Not all
            servers decode them.
    """
    if urlencode:
        client_id, client_secret = quote_plus(client_id), quote_plus(client_secret)
        scope = None if scope is None else quote_plus(scope)
    body = "grant_type=client_credentials"
    if scope is not None:
        body += f"&scope={scope}"
    login = base64.b64encode(f"{client_id}:{client_secret}".encode()).decode()
    return Form(body, {"Authorization": f"Basic {login}"})


def bearer_form(assertion: str, scope: str | None) -> Form:
    """Return the request of RFC 7523, with a signed assertion instead of a secret."""
    kind = quote_plus("urn:ietf:params:oauth:grant-type:jwt-bearer")
    body = f"grant_type={kind}&assertion={quote_plus(assertion)}"
    if scope is not None:
        body += f"&scope={quote_plus(scope)}"
    return Form(body, {})


def check_url(setting: str, url: str, allowed: Sequence[str]) -> None:
    """Check the URL of a server to which secrets are sent.

    URLs with https are allowed, and http on this machine. All others must be in `allowed`.

    Args:
        setting: the name of the setting, for errors.
        allowed: the setting `sasl_oauthbearer_allowed_urls`.

    Raises:
        ConfigError: the URL is malformed or not allowed.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _ = parts.port  # raises ValueError for an invalid port number
    except ValueError:
        raise ConfigError(f"{setting} is not a URL") from None
    if parts.username is not None or parts.password is not None:
        raise ConfigError(f"{setting} must not have a user name or a password in it")
    if parts.scheme not in ("http", "https", "file"):
        raise ConfigError(f"{setting} must be a URL with https, http or file")
    if any(not "\x20" < c < "\x7f" for c in url):
        raise ConfigError(f"{setting} has characters that a URL cannot have")
    if parts.scheme != "file" and not host:
        raise ConfigError(f"{setting} has no host")
    if parts.scheme == "file" and (host or not parts.path.startswith("/")):
        raise ConfigError(f"{setting}: write file:///PATH, with an absolute path")
    if parts.scheme == "https" or url in allowed or is_plain_on_loopback(url):
        return
    why = "would send the secret in clear text" if parts.scheme == "http" else "names a file"
    raise ConfigError(
        f"{setting}={shown_url(url)} {why}: add it to sasl_oauthbearer_allowed_urls to use it"
    )


def is_plain_on_loopback(url: str) -> bool:
    """Return whether a URL means a server on this machine, by http without TLS."""
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname in _LOOPBACK


def shown_url(url: str) -> str:
    """Return a URL without its query and fragment, which may have a secret."""
    return urlsplit(url)._replace(query="", fragment="").geturl()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Message,
        newurl: str,
    ) -> None:
        return None


class _Http(urllib.request.HTTPHandler):
    """Opens connections with one timeout for connecting, and other timeouts for the answer."""

    def __init__(self, read_timeout: float) -> None:
        super().__init__()
        self._read_timeout = read_timeout

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        def connection(host: str, **options: Any) -> http.client.HTTPConnection:
            return _limited(http.client.HTTPConnection(host, **options), self._read_timeout)

        return self.do_open(connection, req)


class _Https(urllib.request.HTTPSHandler):
    """Like `_Http`, but with TLS and the certificate authorities of the system."""

    def __init__(self, read_timeout: float) -> None:
        super().__init__()
        self._read_timeout = read_timeout

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        context = ssl.create_default_context()

        def connection(host: str, **options: Any) -> http.client.HTTPConnection:
            return _limited(
                http.client.HTTPSConnection(host, context=context, **options), self._read_timeout
            )

        return self.do_open(connection, req)


def _limited(
    connection: http.client.HTTPConnection, read_timeout: float
) -> http.client.HTTPConnection:
    connect = connection.connect

    def connect_then_limit() -> None:
        connect()
        connection.sock.settimeout(read_timeout)

    connection.connect = connect_then_limit  # type: ignore[method-assign]
    whole: Any = partial(TimedAnswer, read_timeout, max(LONGEST, read_timeout))
    connection.response_class = whole
    return connection
