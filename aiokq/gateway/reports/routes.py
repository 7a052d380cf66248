"""The paths of the reports, as in Dory, and of the status page.

Every request that changes the state of the gateway is a POST. Tests:
tests/fault/test_gateway_reports.py.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from aiokq.gateway.http_messages import Refusal, Request, Response, as_json
from aiokq.gateway.reports.status import SORTS, page
from aiokq.gateway.reports.windows import KEPT
from aiokq.gateway.texts import when

if TYPE_CHECKING:
    from aiokq.gateway.http_server import Answer
    from aiokq.gateway.reports.cached import Cached
    from aiokq.gateway.reports.reports import Reports
    from aiokq.gateway.served import Served

__all__ = ["Routes"]

DEBUG_ACTIONS: Final = ("add_all_topics", "del_all_topics", "truncate_files")
LONGEST_TOPIC: Final = 249

POLICY: Final = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)


class Routes:
    """Adds the reports to the HTTP interface."""

    def __init__(
        self, gateway: Served, reports: Reports, add: Callable[[str, str, Answer], None]
    ) -> None:
        self._gateway = gateway
        self._reports = reports
        self._page: str | None = None
        for path, body in reports.bodies.items():
            add("GET", path, self._report(path, body))
        add("GET", "/", self._status_page)
        add("GET", "/status/json", self._status)
        add("GET", "/discards/json", self._discards)
        add("GET", "/discards/plain", self._discards)
        for path in ("/metadata_update", "/sys/metadata_update"):
            add("POST", path, self._metadata_update)
            add("GET", path, self._use_post)
        add("GET", "/msg_debug/get_topics", self._debug_topics)
        for action in DEBUG_ACTIONS:
            add("POST", f"/msg_debug/{action}", self._debug_action)
            add("GET", f"/msg_debug/{action}", self._use_post)
        for action in ("add_topic", "del_topic"):
            add("POST", f"/msg_debug/{action}/*", self._debug_topic)
            add("GET", f"/msg_debug/{action}/*", self._use_post)

    def _report(self, path: str, body: Cached[bytes]) -> Answer:
        name = path.split("/")[1]
        as_json = path.endswith("/json")

        def handler(request: Request) -> Response:
            self._count(name)
            return _json(body.get()) if as_json else _text(body.get())

        return handler

    def _count(self, name: str) -> None:
        http = self._reports.http
        http[name] = http.get(name, 0) + 1

    # ------------------------------------------------------------ discards

    def _discards(self, request: Request) -> Response:
        self._count("discards")
        reports, earlier = self._reports, _number(request, "earlier", 0, KEPT)
        if request.path.endswith("/json"):
            make, send = reports.discards, _json
        else:
            make, send = reports.discards_text, _text
        if earlier:
            return send(make(earlier=earlier))
        return send(reports.discard_bodies[request.path].get())

    # ------------------------------------------------------------ status page

    def _status_page(self, request: Request) -> Response:
        if self._page is None:
            self._page = page()
        nonce = secrets.token_urlsafe(16)
        return Response(
            200,
            self._page.replace("{{nonce}}", nonce).encode(),
            "text/html; charset=utf-8",
            {
                "Content-Security-Policy": POLICY.format(nonce=nonce),
                "Referrer-Policy": "no-referrer",
            },
        )

    def _status(self, request: Request) -> Response:
        sort = request.query.get("sort", "rate")
        if sort not in SORTS:
            raise Refusal(400, f"`sort` is one of {', '.join(SORTS)}\n")
        document = self._reports.status.document(
            sort=sort,
            ascending=request.query.get("order") == "ascending",
            query=request.query.get("query", ""),
            limit=_number(request, "limit", 50, 10_000),
        )
        return as_json(document)

    # ------------------------------------------------------------ metadata

    def _metadata_update(self, request: Request) -> Response:
        self._gateway.update_metadata()
        return _said(f"Metadata update initiated at {when(time.time())}\n")

    # ------------------------------------------------------------ message debugging

    def _debug_topics(self, request: Request) -> Response:
        self._reports.debug.expire()
        topics = self._reports.debug.topics
        if topics is None:
            return _said("All message debug topics are currently enabled\n")
        if not topics:
            return _said("No message debug topics are currently enabled\n")
        return _said("".join(f"topic: [{topic}]\n" for topic in sorted(topics)))

    def _debug_action(self, request: Request) -> Response | Coroutine[Any, Any, Response]:
        self._need_directory()
        debug = self._reports.debug
        action = request.path.rpartition("/")[2]
        if action == "add_all_topics":
            debug.add_all()
            return _said("All message debug topics enabled\n")
        if action == "del_all_topics":
            debug.remove_all()
            return _said("All message debug topics disabled\n")
        debug.truncate()
        return self._truncated()

    async def _truncated(self) -> Response:
        await self._reports.scribe.flush()
        return _said("Message debug files truncated\n")

    def _debug_topic(self, request: Request) -> Response:
        self._need_directory()
        topic = request.parameter
        if not _is_name(topic):
            raise Refusal(400, "this is no name of a topic\n")
        debug = self._reports.debug
        adding = request.path.startswith("/msg_debug/add_topic/")
        done = debug.add(topic) if adding else debug.remove(topic)
        verb = "enable" if adding else "disable"
        said = f"{verb.capitalize()}d" if done else f"Failed to {verb}"
        return _said(f"{said} debug topic [{topic}]\n")

    def _need_directory(self) -> None:
        if self._reports.debug.directory is None:
            raise Refusal(409, "message debugging is off: set `directory` in [debug]\n")

    def _use_post(self, request: Request) -> Response:
        url = f"http://{request.headers.get('host', 'localhost')}{request.path}"
        raise Refusal(
            405,
            f"this changes the gateway: send a POST, such as: curl -X POST {url}\n",
            {"Allow": "POST"},
        )


def _json(body: bytes) -> Response:
    return Response(200, body, "application/json")


def _text(body: bytes) -> Response:
    return Response(200, body)


def _said(text: str) -> Response:
    return Response(200, text.encode())


def _number(request: Request, name: str, default: int, most: int) -> int:
    text = request.query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise Refusal(400, f"`{name}` is a number\n")
    return min(int(text), most)


def _is_name(topic: str) -> bool:
    return (
        0 < len(topic) <= LONGEST_TOPIC
        and topic.isascii()
        and topic.replace("-", "").replace("_", "").replace(".", "x").isalnum()
    )
