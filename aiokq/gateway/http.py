"""Http: the HTTP interface of a gateway, on aiohttp. Imported only if the interface is on.

Other modules add reports by `Http.add`. Tests: tests/fault/test_gateway_http.py.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
from base64 import b64decode
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from aiohttp import web

from aiokq.errors import ConfigError
from aiokq.gateway.reports.cached import Cached
from aiokq.gateway.reports.texts import path_text

if TYPE_CHECKING:
    from aiokq.gateway.served import Served
    from aiokq.gateway.settings_tables import HttpSettings

__all__ = ["Handler", "Http"]

logger = logging.getLogger("aiokq.gateway")

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

SHUTDOWN_SECONDS: Final = 1.0
MOST_BYTES: Final = 64 * 1024
"""Largest body of a request."""

MOST_CONNECTIONS: Final = 256
"""Number of open connections from which each new one closes the oldest."""


class Http:
    """Serves reports and takes commands.

    Without a token, a request must name this machine as its Host. Otherwise a web site could give
    its own name the address of this machine, and its pages could read the reports (DNS rebinding).
    A request that changes something must not come from a page of another site. With `token_file`,
    each request except `/healthz` needs the token, as Bearer or as password.

    Args:
        counts: numbers of `requests` and of `errors`, which are counted here.

    Attributes:
        port: the port, once started.
    """

    def __init__(
        self, gateway: Served, settings: HttpSettings, counts: MutableMapping[str, int]
    ) -> None:
        self._gateway = gateway
        self._settings = settings
        self._token = _token(settings)
        self._app = web.Application(middlewares=[self._guard], client_max_size=MOST_BYTES)
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None
        self.port = settings.port
        self._counts = counts
        self._exposition: Cached[bytes] | None = None
        self.add("GET", "/healthz", self._health)
        self.add("GET", "/readyz", self._ready)
        self.add("GET", "/metrics", self._metrics)
        self.add("POST", "/reload", self._reload)

    def add(self, method: str, path: str, handler: Handler) -> None:
        """Serve a path; only before `start`. A path for GET also answers HEAD."""
        if method == "GET":
            self._app.router.add_get(path, handler)
        else:
            self._app.router.add_route(method, path, handler)

    async def start(self) -> None:
        """Listen.

        Raises:
            ConfigError: the port cannot be opened.
        """
        settings = self._settings
        self._runner = web.AppRunner(
            self._app, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS, keepalive_timeout=15
        )
        try:
            await self._runner.setup()
            self._listener = await asyncio.get_running_loop().create_server(
                self._connection, settings.host, settings.port, reuse_address=True
            )
        except BaseException as error:
            await self.close()
            if isinstance(error, OSError):
                raise ConfigError(
                    f"HTTP on {settings.host}:{settings.port}: {error.strerror}"
                ) from error
            raise
        self.port = self._listener.sockets[0].getsockname()[1]

    def _connection(self) -> asyncio.Protocol:
        """Return the protocol of a new connection.

        Connections that send nothing cost a local program nothing, and aiohttp keeps them for good.
        """
        assert self._runner is not None
        server = self._runner.server
        assert server is not None
        open_now = server.connections
        if len(open_now) >= MOST_CONNECTIONS:
            open_now[0].force_close()
        return server()

    def change(self, settings: HttpSettings) -> None:
        """Use another token; the address stays.

        Raises:
            ConfigError: the token cannot be read.
        """
        self._token = _token(settings)
        self._settings = settings

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of its settings; the port is 0 for a free one."""
        return self._settings.host, self._settings.port

    async def close(self) -> None:
        """Stop listening, and end the connections. May be called twice."""
        if self._listener is not None:
            self._listener.close()
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def where(self) -> str:
        """The base of the URLs, such as http://127.0.0.1:9690."""
        host = self._settings.host
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._count("requests")
        if self._token is None:
            if not _is_local(request.headers.get("Host")):
                raise web.HTTPForbidden(text="the header Host must name this machine\n")
        elif request.path != "/healthz" and not self._has_token(request):
            raise web.HTTPUnauthorized(
                text="the header `Authorization: Bearer TOKEN` is missing or wrong\n",
                headers={"WWW-Authenticate": 'Basic realm="token as password", charset="UTF-8"'},
            )
        if request.method not in ("GET", "HEAD") and _is_foreign(request):
            raise web.HTTPForbidden(text="a page of another site may not change the gateway\n")
        try:
            response = await handler(request)
        except web.HTTPException:
            raise
        except Exception:
            self._count("errors")
            raise
        response.headers.setdefault("Cache-Control", "no-store")
        response.headers.setdefault("X-Content-Type-Options", "nosniff")
        return response

    def _count(self, what: str) -> None:
        self._counts[what] = self._counts.get(what, 0) + 1

    def _has_token(self, request: web.Request) -> bool:
        kind, _, given = request.headers.get("Authorization", "").partition(" ")
        data = given.strip().encode("utf-8", "surrogateescape")
        if kind.lower() == "basic":  # browsers ask for a name and a password
            try:
                data = b64decode(data, validate=True).partition(b":")[2]
            except ValueError:
                return False
        elif kind.lower() != "bearer":
            return False
        return self._token is not None and hmac.compare_digest(data, self._token)

    async def _health(self, request: web.Request) -> web.Response:
        if self._gateway.failed is not None:  # its text is for the log: no token is needed here
            return web.json_response({"status": "failed"}, status=503)
        return web.json_response({"status": "ok"})

    async def _ready(self, request: web.Request) -> web.Response:
        """Ready means that messages are accepted; Kafka need not be reachable."""
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
        return web.json_response(document, status=503 if found.reasons else 200)

    async def _metrics(self, request: web.Request) -> web.Response:
        from aiokq.gateway.metrics import CONTENT_TYPE, exposition

        if self._exposition is None:
            self._exposition = Cached(lambda: exposition(self._gateway))
        body = self._exposition.get()
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    async def _reload(self, request: web.Request) -> web.Response:
        try:
            changed = await self._gateway.reload()
        except ConfigError as error:
            return web.json_response({"error": error.message}, status=409)
        return web.json_response({"changed": changed})


def _is_local(host: str | None) -> bool:
    """Whether a Host names this machine and belongs to no web site; HTTP/1.0 may lack one."""
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


def _is_foreign(request: web.Request) -> bool:
    """Whether a page of another site sends the request; programs send no Origin."""
    origin = request.headers.get("Origin")
    return origin is not None and origin.partition("://")[2] != request.headers.get("Host", "")


def _token(settings: HttpSettings) -> bytes | None:
    if settings.token_file is None:
        return None
    try:
        token = Path(settings.token_file).read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"cannot read `token_file`: {error}") from error
    if len(token) < 16:
        raise ConfigError(f"`token_file` {settings.token_file}: the token has fewer than 16 bytes")
    return token
