"""The gateway's status page in a real browser: live figures, light and dark, names of any bytes.

With AIOKQ_SCREENSHOTS=DIR, the screenshots stay in DIR.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.fault.gateway_support import Rig, message, rig
from tests.interop import chromium as browser

pytestmark = pytest.mark.skipif(browser.PROGRAM is None, reason=browser.WHY_NOT)

NASTY = [b"<img src=x onerror=alert(1)>", b'"quote', b"\xff\xfe", b"new\nline"]
VALUES = {
    "http": {"port": 0},
    "pool": {"max_bytes": "4 MiB"},
    "topics": {
        "clicks": {"rate_limit": {"interval_ms": 1000, "max_messages": 300}},
        "audit": {"max_message_bytes": 500, "batching": {"messages": 100_000}},
    },
}
TOPICS = {"orders": 3, "clicks": 1, "audit": 1, "web.access-log": 3, "metrics.hosts": 1, "idle": 1}


def keep(name: str, image: bytes) -> None:
    """Check that an image is there; write it where AIOKQ_SCREENSHOTS says."""
    assert image.startswith(b"\x89PNG")
    assert len(image) > 10_000
    directory = os.environ.get("AIOKQ_SCREENSHOTS")
    if directory:
        Path(directory, name).write_bytes(image)


async def traffic(r: Rig, stop: asyncio.Event) -> None:
    """Send messages of every fate until the test ends."""
    n = 0
    while not stop.is_set():
        n += 1
        await r.send(*[message("orders", b"o" * 200)] * (40 + 10 * (n % 3)))
        await r.send(*[message("web.access-log", b"w" * 120)] * 90, kind="unix_stream")
        await r.send(*[message("metrics.hosts", b"m" * 60)] * 25, kind="tcp")
        await r.send(*[message("clicks", b"c" * 30)] * 60)
        await r.send(message("audit", b"a" * 100), message("audit", b"a" * 900))
        await r.send(message(NASTY[n % len(NASTY)], b"x"))
        await asyncio.sleep(0.1)


async def test_the_page_shows_live_figures_in_light_and_dark():
    async with rig(VALUES, topics=TOPICS) as r, browser.chromium() as page:
        assert r.gateway.http is not None
        stop = asyncio.Event()
        sending = asyncio.gather(traffic(r, stop))
        try:
            await page.open(r.gateway.http.where + "/", height=1250)
            await page.scheme("light")
            await page.until("document.querySelector('#state').textContent === 'ready'")
            # Figures move without a reload.
            first = await page.until("history.length >= 2 && history.at(-1).received > 0")
            assert first
            await page.until("history.length >= 8")
            text = await page.value("document.body.innerText")
            for expected in ("orders", "web.access-log", "rate limit", "too long", "bad topic"):
                assert expected in text
            # A name is text, whatever is in it.
            assert "<img src=x onerror=alert(1)>" in text
            assert "new\\nline" in text
            assert not await page.value("document.querySelectorAll('main img').length")
            for scheme in ("light", "dark"):
                await page.scheme(scheme)
                keep(f"status-{scheme}.png", await page.screenshot())
            back = await page.value("getComputedStyle(document.body).backgroundColor")
            assert back == "rgb(17, 20, 24)"
            # The page fits a narrow screen.
            await page.size(420, 1600)
            assert await page.value("document.documentElement.scrollWidth") <= 420
            keep("status-narrow.png", await page.screenshot())
            # Sorting and searching ask the gateway.
            await page.size(1180, 1250)
            await page.value("document.querySelector('[data-column=topic]').click()")
            await page.until("document.querySelector('#topics td').textContent === 'audit'")
            await page.value(
                "at('query').value = 'log'; at('query').dispatchEvent(new Event('input'))"
            )
            await page.until("document.querySelectorAll('#topics tr').length === 1")
            # The button sends a POST from the page itself, which is allowed.
            await page.value("at('update').click()")
            await page.until("at('update').textContent === 'Metadata requested'")
        finally:
            stop.set()
            await sending
        assert page.errors == []
        own = urlsplit(r.gateway.http.where).netloc
        hosts = {urlsplit(url).netloc for url in page.requested if url.startswith("http")}
        assert hosts == {own}


async def test_the_page_tells_when_the_gateway_has_gone():
    async with browser.chromium() as page:
        async with rig({"http": {"port": 0}}) as r:
            assert r.gateway.http is not None
            await page.open(r.gateway.http.where + "/")
            await page.until("document.querySelector('#state').textContent === 'ready'")
        await page.until("document.querySelector('#state').textContent === 'not reachable'")


async def test_the_page_works_with_5000_topics():
    """The page shows some of them, and finds each of them by its name."""
    async with rig({"http": {"port": 0}}) as r, browser.chromium() as page:
        assert r.gateway.http is not None
        for n in range(5000):
            r.gateway.accounting._of(f"topic-{n:04}").received += n
        await page.open(r.gateway.http.where + "/")
        await page.until("document.querySelectorAll('#topics tr').length === 100")
        assert "100 of 5" in await page.value("at('shown').textContent")
        await page.value(
            "at('query').value = 'topic-4321'; at('query').dispatchEvent(new Event('input'))"
        )
        await page.until("document.querySelectorAll('#topics tr').length === 1")
        assert await page.value("document.querySelector('#topics td').textContent") == "topic-4321"
        assert page.errors == []
