"""Debian's Chromium without a window, over its DevTools protocol."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import tempfile
from base64 import b64decode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

PROGRAM = shutil.which("chromium")
WHY_NOT = "Debian's chromium is not installed: bash tools/install_debian.sh chromium chromium"
LIMIT = 60.0


class Page:
    """A page that is open in Chromium.

    Attributes:
        errors: what the page wrote to the console as an error, exceptions included.
        requested: the URLs that the page requested.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self.errors: list[str] = []
        self.requested: list[str] = []

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol; events that arrive meanwhile are noted."""
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": params})
        async with asyncio.timeout(LIMIT):
            while True:
                message = json.loads(await self._socket.receive_str())
                if message.get("id") == self._number:
                    assert "error" not in message, message["error"]
                    result: dict[str, Any] = message["result"]
                    return result
                self._note(message.get("method"), message.get("params", {}))

    def _note(self, method: str | None, params: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requested.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])

    async def open(self, url: str, *, width: int = 1180, height: int = 1000) -> None:
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")
        await self.size(width, height)
        await self.call("Page.navigate", url=url)

    async def size(self, width: int, height: int) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    async def scheme(self, name: str) -> None:
        """Prefer `light` or `dark`."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        await self.call("Emulation.setEmulatedMedia", features=features)

    async def value(self, expression: str) -> Any:
        found = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def until(self, expression: str) -> Any:
        """Wait until a JavaScript expression is true; return its value."""
        guarded = f"(() => {{ try {{ return {expression}; }} catch {{ return false; }} }})()"
        async with asyncio.timeout(LIMIT):
            while not (value := await self.value(guarded)):  # noqa: ASYNC110  a page in Chromium
                await asyncio.sleep(0.1)
        return value

    async def screenshot(self) -> bytes:
        """Return a PNG of what the page shows."""
        found = await self.call("Page.captureScreenshot", format="png")
        return b64decode(found["data"])


@contextlib.asynccontextmanager
async def chromium() -> AsyncIterator[Page]:
    """Start Chromium with one empty page."""
    assert PROGRAM is not None, WHY_NOT
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            PROGRAM,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--no-first-run",
            "--hide-scrollbars",
            "--remote-debugging-port=0",
            f"--user-data-dir={profile}",
            "about:blank",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            port = await _port(Path(profile, "DevToolsActivePort"))
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json") as response:
                    pages = await response.json(content_type=None)
                url = next(page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page")
                async with session.ws_connect(url, max_msg_size=0) as socket:
                    yield Page(socket)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            try:
                async with asyncio.timeout(10):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


async def _port(file: Path) -> int:
    async with asyncio.timeout(LIMIT):
        while True:
            if lines := _lines(file):
                return int(lines[0])
            await asyncio.sleep(0.05)
