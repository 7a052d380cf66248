"""`Http`: checks the requests of the gateway's HTTP interface, and passes them to handlers.

Imported only if the interface is on. Other modules add reports by `Http.add`. Tests:
tests/fault/test_gateway_http.py.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import os
import stat
from base64 import b64decode
from collections.abc import Callable, Coroutine, MutableMapping
from typing import TYPE_CHECKING, Any, Final

from aiokq.errors import ConfigError
from aiokq.gateway.http_messages import Refusal, Request, Response, as_json
from aiokq.gateway.http_server import Answer, HttpServer
from aiokq.gateway.reports.cached import Cached
from aiokq.gateway.texts import path_text

if TYPE_CHECKING:
    from aiokq.gateway.served import Served
    from aiokq.gateway.settings_tables import HttpSettings

__all__ = ["Http", "read_token"]

logger = logging.getLogger("aiokq.gateway")

MOST_TOKEN_BYTES: Final = 4096
"""Maximum size of the token in `token_file`; a request with a longer one would be too large."""

SHUTDOWN_SECONDS: Final = 1.0


class Http:
    """Serves the reports and commands of a gateway over HTTP.

    Without a token, the header Host of a request must name this machine. Otherwise a web site could
    resolve its own name to this machine, and its pages could read the reports (DNS rebinding). A
    request that changes something must not come from a page of another site. With `token_file`,
    each request except `/healthz` needs the token, as a Bearer token or as the password.

    Args:
        counts: the counts of `requests` and `errors`; this object increments them.
        spawn: starts a task that belongs to the gateway.
    """

    def __init__(
        self,
        gateway: Served,
        settings: HttpSettings,
        counts: MutableMapping[str, int],
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
    ) -> None:
        self._gateway = gateway
        self._settings = settings
        self._token = read_token(settings)
        self._server = HttpServer(self._answer, spawn)
        self._counts = counts
        self._paths: dict[str, dict[str, Answer]] = {}
        self._below: dict[str, dict[str, Answer]] = {}
        """The handlers of all paths that consist of the key and one more part."""
        self._exposition: Cached[bytes] | None = None
        self.add("GET", "/healthz", self._health)
        self.add("GET", "/readyz", self._ready)
        self.add("GET", "/metrics", self._metrics)
        self.add("POST", "/reload", self._reload)

    def add(self, method: str, path: str, handler: Answer) -> None:
        """Serve a path; "/*" at its end matches one part of any name. GET also serves HEAD."""
        if path.endswith("/*"):
            self._below.setdefault(path[:-1], {})[method] = handler
        else:
            self._paths.setdefault(path, {})[method] = handler

    async def start(self) -> None:
        """Listen.

        Raises:
            ConfigError: the port cannot be opened.
        """
        settings = self._settings
        try:
            await self._server.start(settings.host, settings.port)
        except OSError as error:
            raise ConfigError(
                f"HTTP on {settings.host}:{settings.port}: {error.strerror}"
            ) from error

    def change(self, settings: HttpSettings) -> None:
        """Use other settings with the same address; read their token.

        Raises:
            ConfigError: the token cannot be read.
        """
        self._token = read_token(settings)
        self._settings = settings

    def stop_listening(self) -> None:
        """Leave the port to another interface, until `listen_again`. Open connections stay."""
        self._server.stop_listening()

    async def listen_again(self) -> None:
        """Listen on the same port as before `stop_listening`; if that fails, log the error."""
        try:
            await self._server.start(self._settings.host, self._server.port)
        except OSError as error:
            logger.error("HTTP does not listen any more: address=%s error=%s", self.where, error)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port in the settings; port 0 means a free port."""
        return self._settings.host, self._settings.port

    @property
    def port(self) -> int:
        """The port, once started."""
        return self._server.port

    async def close(self, seconds: float = SHUTDOWN_SECONDS) -> None:
        """Stop listening, and end the connections. May be called twice.

        Args:
            seconds: the time in which programs may read their answers, at most SHUTDOWN_SECONDS.
        """
        await self._server.close(min(seconds, SHUTDOWN_SECONDS))

    @property
    def where(self) -> str:
        """The base of the URLs, such as http://127.0.0.1:9690."""
        host = self._settings.host
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def _answer(self, request: Request) -> Response | Coroutine[Any, Any, Response]:
        self._count("requests")
        self._check(request)
        handler, request = self._handler(request)
        try:
            answer = handler(request)
        except Refusal:
            raise
        except Exception:
            self._count("errors")
            raise
        return answer if isinstance(answer, Response) else self._wait_for(answer)

    async def _wait_for(self, answer: Coroutine[Any, Any, Response]) -> Response:
        try:
            return await answer
        except Refusal:
            raise
        except Exception:
            self._count("errors")
            raise

    def _check(self, request: Request) -> None:
        """Raise Refusal if the request is not allowed."""
        if self._token is None:
            if not _is_local(request.headers.get("host")):
                raise Refusal(403, "the header Host must name this machine\n")
        elif request.path != "/healthz" and not self._has_token(request):
            raise Refusal(
                401,
                "the header `Authorization: Bearer TOKEN` is missing or wrong\n",
                {"WWW-Authenticate": 'Basic realm="token as password", charset="UTF-8"'},
            )
        if request.method not in ("GET", "HEAD") and _is_foreign(request):
            raise Refusal(403, "a page of another site may not change the gateway\n")

    def _handler(self, request: Request) -> tuple[Answer, Request]:
        """Return the handler of a request, and the request with its path parameter."""
        methods = self._paths.get(request.path)
        if methods is None:
            above, slash, last = request.path.rpartition("/")
            methods = self._below.get(above + slash) if last else None
            request = request._replace(parameter=last)
        if methods is None:
            raise Refusal(404)
        handler = methods.get("GET" if request.method == "HEAD" else request.method)
        if handler is None:
            allowed = sorted({*methods, *(["HEAD"] if "GET" in methods else [])})
            raise Refusal(405, "", {"Allow": ",".join(allowed)})
        return handler, request

    def _count(self, what: str) -> None:
        self._counts[what] = self._counts.get(what, 0) + 1

    def _has_token(self, request: Request) -> bool:
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        data = given.strip().encode("utf-8", "surrogateescape")
        if kind.lower() == "basic":  # browsers can only ask for a name and a password
            try:
                data = b64decode(data, validate=True).partition(b":")[2]
            except ValueError:
                return False
        elif kind.lower() != "bearer":
            return False
        return self._token is not None and hmac.compare_digest(data, self._token)

    def _health(self, request: Request) -> Response:
        if self._gateway.failed is not None:  # no error text, because the path needs no token
            return as_json({"status": "failed"}, 503)
        return as_json({"status": "ok"})

    def _ready(self, request: Request) -> Response:
        """Return 200 if messages are accepted, else 503; Kafka need not be reachable."""
        gateway = self._gateway
        found = gateway.problems()
        document = {
            "ready": not found.reasons,
            "reasons": found.reasons,
            "warnings": found.warnings,
            "inputs": [path_text(one.where) for one in gateway.inputs],
            "stopped_inputs": [
                path_text(one.where) for one in gateway.inputs if not one.counts().running
            ],
            "kafka_reachable": bool(gateway.cluster.health().brokers_up),
            "reload_error": gateway.reload_error,
        }
        return as_json(document, 503 if found.reasons else 200)

    def _metrics(self, request: Request) -> Response:
        from aiokq.gateway.metrics import CONTENT_TYPE, exposition

        if self._exposition is None:
            self._exposition = Cached(lambda: exposition(self._gateway))
        return Response(200, self._exposition.get(), CONTENT_TYPE)

    async def _reload(self, request: Request) -> Response:
        try:
            changed = await self._gateway.reload()
        except ConfigError as error:
            return as_json({"error": error.message}, 409)
        return as_json({"changed": changed})


def read_token(settings: HttpSettings) -> bytes | None:
    """Return the token of `token_file`; None if there is no such option.

    Raises:
        ConfigError: the file cannot be read, or the token is too short.
    """
    if settings.token_file is None:
        return None
    path = settings.token_file
    try:
        # Without O_NONBLOCK, the open of a FIFO would wait for a writer.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(fd, "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise ConfigError(f"`token_file` {path} is no regular file")
            token = file.read(MOST_TOKEN_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read `token_file`: {error}") from error
    if len(token) > MOST_TOKEN_BYTES:
        raise ConfigError(f"`token_file` {path}: the token has more than {MOST_TOKEN_BYTES} bytes")
    token = token.strip()
    if len(token) < 16:
        raise ConfigError(f"`token_file` {settings.token_file}: the token has fewer than 16 bytes")
    return token


def _is_local(host: str | None) -> bool:
    """Return whether a Host header is localhost or a loopback address.

    A missing header is accepted, because HTTP/1.0 does not require it.
    """
    if host is None:
        return True
    name = host.lower()
    if not name.endswith("]"):
        name = name.rpartition(":")[0] or name
    return name == "localhost" or _is_loopback(name.strip("[]"))


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _is_foreign(request: Request) -> bool:
    """Return whether a page of another site sends the request; programs send no Origin."""
    origin = request.headers.get("origin")
    return origin is not None and origin.partition("://")[2] != request.headers.get("host", "")
