"""Http: the HTTP interface of a gateway, on aiohttp. Imported only if the interface is on.

Other modules add reports by `Http.add`. Tests: tests/fault/test_gateway_http.py.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from aiohttp import web

from aiokq.errors import ConfigError

if TYPE_CHECKING:
    from aiokq.gateway.served import Served
    from aiokq.gateway.settings import HttpSettings

__all__ = ["Handler", "Http"]

logger = logging.getLogger("aiokq.gateway")

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

LOCAL: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
SHUTDOWN_SECONDS: Final = 1.0
MOST_BYTES: Final = 64 * 1024
"""Largest body of a request."""


class Http:
    """Serves reports and takes commands.

    A POST needs the Host of this server, so that a page in a browser cannot send one. With
    `token_file`, each request needs the token.

    Attributes:
        port: the port, once started.
    """

    def __init__(self, gateway: Served, settings: HttpSettings) -> None:
        self._gateway = gateway
        self._settings = settings
        self._token = _token(settings)
        self._app = web.Application(middlewares=[self._guard], client_max_size=MOST_BYTES)
        self._runner: web.AppRunner | None = None
        self.port = settings.port
        self.add("GET", "/accounting/json", self._accounting)
        self.add("GET", "/healthz", self._health)
        self.add("GET", "/readyz", self._ready)
        self.add("GET", "/metrics", self._metrics)
        self.add("POST", "/reload", self._reload)

    def add(self, method: str, path: str, handler: Handler) -> None:
        """Serve a path; only before `start`."""
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
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, settings.host, settings.port).start()
        except OSError as error:
            await self._runner.cleanup()
            raise ConfigError(
                f"HTTP on {settings.host}:{settings.port}: {error.strerror}"
            ) from error
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        """Stop listening, and end the connections. May be called twice."""
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def where(self) -> str:
        """The base of the URLs, such as http://127.0.0.1:9690."""
        host = self._settings.host
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._token is not None:
            given = request.headers.get("Authorization", "").removeprefix("Bearer ").encode()
            if not hmac.compare_digest(given, self._token):
                raise web.HTTPUnauthorized(
                    text="the header `Authorization: Bearer TOKEN` is missing or wrong\n",
                    headers={"WWW-Authenticate": "Bearer"},
                )
        if request.method not in ("GET", "HEAD") and not self._is_own_host(request):
            raise web.HTTPForbidden(text="the headers Host and Origin must name this server\n")
        response = await handler(request)
        response.headers.setdefault("Cache-Control", "no-store")
        response.headers.setdefault("X-Content-Type-Options", "nosniff")
        return response

    def _is_own_host(self, request: web.Request) -> bool:
        own = {f"{name}:{self.port}" for name in LOCAL} | {self.where.removeprefix("http://")}
        if self._token is not None:
            return True  # a page in a browser does not have the token
        origin = request.headers.get("Origin")
        return request.headers.get("Host", "").lower() in own and (
            origin is None or origin.lower().removeprefix("http://") in own
        )

    async def _accounting(self, request: web.Request) -> web.Response:
        return web.json_response(self._gateway.snapshot().document())

    async def _health(self, request: web.Request) -> web.Response:
        failed = self._gateway.failed
        if failed is not None:
            return web.json_response({"status": "failed", "error": repr(failed)}, status=503)
        return web.json_response({"status": "ok"})

    async def _ready(self, request: web.Request) -> web.Response:
        """Ready means that messages are accepted; Kafka need not be reachable."""
        gateway = self._gateway
        stopped = [one.where for one in gateway.inputs if not one.counts().running]
        ready = gateway.accepting and gateway.failed is None and not stopped
        kafka = bool(gateway.cluster.health().brokers_up)
        document = {
            "ready": ready,
            "inputs": [one.where for one in gateway.inputs],
            "stopped_inputs": stopped,
            "kafka_reachable": kafka,
            "reload_error": gateway.reload_error,
        }
        return web.json_response(document, status=200 if ready else 503)

    async def _metrics(self, request: web.Request) -> web.Response:
        from aiokq.gateway.metrics import CONTENT_TYPE, exposition

        body = exposition(self._gateway)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    async def _reload(self, request: web.Request) -> web.Response:
        try:
            changed = self._gateway.reload()
        except ConfigError as error:
            return web.json_response({"error": error.message}, status=409)
        return web.json_response({"changed": changed})


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
