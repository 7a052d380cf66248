"""The reports of a gateway over HTTP: acceptance points 5, 15, 40, 44 to 46 and 48 to 50."""

from __future__ import annotations

import asyncio
import json
import re
import time
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from aiokq.gateway import Gateway, GatewaySettings
from tests.fault.gateway_support import (
    LIMIT,
    Rig,
    both_engines,
    configuration,
    directory,
    discarded,
    engine,  # noqa: F401
    message,
    rig,
)

HTTP: dict[str, Any] = {"http": {"port": 0}}
NAMES = ("server_info", "counters", "discards", "queues", "metadata_fetch_time")
NASTY = [b'quote"', b"new\nline", b"\xff\x00", b"\\", "\u00fc".encode(), b"<b>&", b"\xed\xa0\x80"]


async def ask(
    r: Rig | Gateway, path: str, method: str = "GET", **options: Any
) -> tuple[int, str, aiohttp.ClientResponse]:
    gateway = r.gateway if isinstance(r, Rig) else r
    assert gateway.http is not None
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, gateway.http.where + path, **options) as response,
    ):
        return response.status, await response.text(), response


async def document(r: Rig | Gateway, path: str) -> Any:
    status, body, response = await ask(r, path)
    assert status == 200
    assert response.content_type == "application/json"
    return json.loads(body)


async def counters(r: Rig) -> dict[str, int]:
    return {one["name"]: one["value"] for one in (await document(r, "/counters/json"))["counters"]}


# ---------------------------------------------------------------- every report


async def test_every_report_has_pid_version_since_and_now():
    async with rig(HTTP) as r:
        for name in NAMES:
            found = await document(r, f"/{name}/json")
            assert {"pid", "version", "since", "now"} <= found.keys()
            status, text, response = await ask(r, f"/{name}/plain")
            assert (status, response.content_type) == (200, "text/plain")
            assert re.match(r"pid: \d+\nversion: \S+\nsince: \d+ \w{3} \w{3} ", text)
        times = await document(r, "/metadata_fetch_time/json")
        assert times["now"] // 1000 >= times["since"]
        assert times["last_updated"] >= times["last_modified"]
        assert "metadata last modified at" in (await ask(r, "/metadata_fetch_time/plain"))[1]
        assert (await ask(r, "/healthz", "HEAD"))[0] == 200


@both_engines
async def test_point_45_every_report_is_json_with_any_bytes_in_topics():
    async with rig(HTTP) as r:
        await r.send(*(message(name, name) for name in NASTY))
        await r.settled(len(NASTY))
        for path in (*(f"/{name}/json" for name in NAMES), "/status/json", "/accounting/json"):
            await document(r, path)
        report = (await document(r, "/discards/json"))["unfinished_report"]
        assert report["bad_topic_msg_count"] == len(NASTY)
        assert set(report["recent_bad_topic"]) == {
            'quote"', "new\nline", "\\xff\x00", "\\", "\u00fc", "<b>&", "\\xed\\xa0\\x80",
        }  # fmt: skip
        text = (await ask(r, "/discards/plain"))[1]
        assert text.count("recent bad topic: ") == len(NASTY)


@both_engines
async def test_point_50_unknown_paths_are_404_and_both_update_urls_are_accepted():
    async with rig(HTTP) as r:
        for path in ("/nope", "/discards", "/discards/xml", "/sys/discards", "/msg_debug/x"):
            assert (await ask(r, path))[0] == 404
            assert (await ask(r, path, "POST"))[0] == 404
        for path in ("/metadata_update", "/sys/metadata_update"):
            status, text, _ = await ask(r, path, "POST")
            assert status == 200
            assert re.fullmatch(r"Metadata update initiated at \d+ \w{3} \w{3} .*\n", text)
        assert (await ask(r, "/discards/json?earlier=x"))[0] == 400


async def test_what_changes_the_gateway_is_a_post_and_a_get_tells_how():
    async with rig(HTTP) as r:
        for path in (
            "/metadata_update",
            "/msg_debug/add_topic/orders",
            "/msg_debug/del_topic/orders",
            "/msg_debug/add_all_topics",
            "/msg_debug/del_all_topics",
            "/msg_debug/truncate_files",
        ):
            status, text, response = await ask(r, path)
            assert (status, response.headers["Allow"]) == (405, "POST")
            assert f"curl -X POST {response.url}" in text


# ---------------------------------------------------------------- discards


@both_engines
async def test_point_05_timestamps_of_the_client_are_in_the_discard_report():
    async with rig({**HTTP, "topics": {"orders": {"max_message_bytes": 3}}}) as r:
        await r.send(*(message("orders", b"long", timestamp_ms=ms) for ms in (5, 2**40, -3)))
        await r.settled(3)
        (topic,) = (await document(r, "/discards/json"))["unfinished_report"]["discard_topic"]
        assert topic == {"topic": "orders", "min_timestamp": -3, "max_timestamp": 2**40, "count": 3}


@both_engines
@pytest.mark.parametrize("kind", ["unix_stream", "tcp"])
async def test_point_15_half_a_message_counts_with_its_transport_and_bytes(kind: str):
    """Dory shows the list of UNIX streams for TCP, too."""
    async with rig(HTTP) as r:
        half = message("orders", b"value")[:23]
        opened = r.socket(kind)
        opened.sendall(message("orders", b"whole") + half)
        opened.close()
        await r.settled(2)
        report = (await document(r, "/discards/json"))["unfinished_report"]
        other = {"unix_stream": "tcp", "tcp": "unix_stream"}[kind]
        assert report[f"{kind}_unclean_disconnect_count"] == 1
        assert report[f"{other}_unclean_disconnect_count"] == 0
        assert report[f"{kind}_unclean_disconnect"] == [b64encode(half).decode()]
        assert report[f"{other}_unclean_disconnect"] == []
        name = {"unix_stream": "UnixStream", "tcp": "Tcp"}[kind]
        assert (await counters(r))[f"{name}InputUncleanDisconnect"] == 1


@both_engines
async def test_point_30_messages_above_the_limit_are_in_both_maps():
    values = {**HTTP, "rate_limit": {"interval_ms": 60_000, "max_messages": 5}}
    async with rig(values) as r:
        await r.send(*(message("orders", b"%d" % n) for n in range(8)))
        await r.settled(8)
        report = (await document(r, "/discards/json"))["unfinished_report"]
        assert report["rate_limit_discard"] == [{"topic": "orders", "count": 3}]
        assert report["discard_topic"][0]["count"] == 3
        assert report["discarded"] == {"rate_limit": 3}


@both_engines
async def test_point_44_two_windows_of_the_report():
    """On a busy machine several windows may end between two requests."""
    async with rig({**HTTP, "discards": {"report_interval_s": 1}}) as r:
        await r.send(message("nowhere", b""))
        await r.settled(1)
        first = await document(r, "/discards/json?earlier=24")
        assert first["interval"] == 1
        then = first["unfinished_report"]
        async with asyncio.timeout(LIMIT):
            while True:
                second = await document(r, "/discards/json?earlier=24")
                now = second["unfinished_report"]
                if now["id"] > then["id"]:
                    break
                await asyncio.sleep(0.05)
        reports = [*second["earlier_reports"], second["finished_report"], now]
        reports.sort(key=lambda one: int(one["id"]))
        assert second["finished_report"]["id"] == now["id"] - 1
        steps = [(one["id"] - now["id"], one["start_time"] - now["start_time"]) for one in reports]
        assert steps == [(n, n) for n in range(1 - len(reports), 1)]
        (finished,) = (one for one in reports if one["id"] == then["id"])
        assert finished == then
        assert sum(one["bad_topic_msg_count"] for one in reports) == 1
        assert "latest finished reporting period:" in (await ask(r, "/discards/plain"))[1]


# ---------------------------------------------------------------- counters, queues, metadata


async def test_counters_have_a_stable_set_of_names_and_never_decrease():
    async with rig(HTTP) as r:
        before = await counters(r)
        await r.send(*[message("orders", b"v")] * 20, message("nowhere", b""))
        await r.settled(21)
        after = await counters(r)
        assert after.keys() == before.keys()
        assert all(after[name] >= before[name] for name in before)
        assert (after["MsgCreate"], after["MsgDestroy"], after["AckOk"]) == (21, 21, 20)
        assert after["DiscardBadTopicMsgOnRoute"] == 1
        assert after["GetMetadataSuccess"] > 0
        plain = (await ask(r, "/counters/plain"))[1]
        found = re.findall(r"^\[(\S+), (\d+)\]\.(\w+)=(\d+)$", plain, re.M)
        assert {name for _, _, name, _ in found} == after.keys()


@both_engines
async def test_point_46_the_queues_add_up_to_what_is_in_flight():
    """Messages in batches, of topics without metadata, and held by an engine without broker."""
    values = {
        **HTTP,
        "delivery": {"shutdown_max_delay_ms": 100},
        "batching": {"messages": 100_000},
        "topics": {"orders": {"batching": {"messages": 1}}},
    }
    async with rig(values, topics={"orders": 2, "held": 1}) as r:
        await r.send(message("orders", b"1"), message("held", b"1"))
        await r.until(lambda: r.gateway.snapshot().total.acked == 1)
        await r.until(lambda: len(r.gateway.router.topics) == 2)
        await r.kafka.close()
        await r.send(*[message("orders", b"v")] * 30, *[message("held", b"v")] * 7)
        await r.send(*[message("unknown", b"v")] * 5)
        await r.until(lambda: r.gateway.snapshot().total.received == 44)
        for _ in range(5):
            found = await document(r, "/queues/json")
            states = {
                topic["topic"]: topic["batch"] + topic["send_wait"] + topic["ack_wait"]
                for topic in found["sending"]
            }
            assert states == {"orders": 30, "held": 8}
            assert found["new"] == 5
            assert r.gateway.snapshot().total.in_flight == 43
            await asyncio.sleep(0.05)
        assert "        43 total (all states" in (await ask(r, "/queues/plain"))[1]


@both_engines
async def test_point_46_the_queues_add_up_at_any_moment():
    async with rig(HTTP, topics={"orders": 3, "other": 1}) as r:
        mixed = [message("orders", bytes(50)), message("other", b"x"), message("nowhere", b"x")]
        sending = asyncio.gather(*(r.send(*mixed * 300, kind=k) for k in ("unix_stream", "tcp")))
        while not sending.done():
            # The pool receives messages between the two snapshots, so they bound each other.
            before = r.gateway.snapshot().total
            queues = r.gateway.reports.queues()
            after = r.gateway.snapshot().total
            assert before.in_flight <= queues.in_flight <= after.in_flight
            await asyncio.sleep(0.001)
        await sending
        await r.settled(1800)
        assert r.gateway.reports.queues() == (0, [], 0)


@both_engines
async def test_point_40_metadata_that_did_not_change_is_updated_and_not_modified():
    async with rig(HTTP) as r:
        await r.send(message("orders", b"1"))
        await r.settled(1)
        await asyncio.sleep(0.1)
        before = await document(r, "/metadata_fetch_time/json")
        opened = (await counters(r))["ConnectorConnectSuccess"]
        await asyncio.sleep(0.05)
        assert (await ask(r, "/metadata_update", "POST"))[0] == 200
        async with asyncio.timeout(10):
            while True:
                after = await document(r, "/metadata_fetch_time/json")
                if after["last_updated"] > before["last_updated"] + 20:
                    break
                await asyncio.sleep(0.02)
        assert after["last_modified"] == before["last_modified"] > 0
        await r.send(message("orders", b"2"))
        await r.settled(2)
        assert (await counters(r))["ConnectorConnectSuccess"] == opened


# ---------------------------------------------------------------- files


def text_of(path: Path, name: str) -> str:
    """Return the content of a debug file."""
    return (path / "debug" / name).read_text()


LINE = re.compile(
    rb"now: \d+ ts: (-?\d+) event: (\w+) info: (\S+) topic: \d+\[(.*)\] "
    rb"key: \d+\[(.*)\] msg: \d+\[(.*)\]"
)


@both_engines
async def test_point_48_every_discard_has_a_line_in_the_log():
    """And the books balance, in all and by topic, with messages that wait to be logged."""
    with directory() as path:
        log = path / "log" / "discards"
        values = {
            "discards": {"log_path": str(log), "log_max_prefix_bytes": 8},
            "topics": {"orders": {"max_message_bytes": 100}},
        }
        async with rig(values) as r:
            await r.send(message("orders", b"good"))
            await r.settled(1)
            await r.send(
                message("orders", bytes(200), key=b"k" * 20, timestamp_ms=7),
                message("orders", b"good"),
                message("nowhere", b"lost", timestamp_ms=8),
                message("no such/name", b"lost", timestamp_ms=9),
                b"garbage!",
            )
            snapshot = await r.settled(6)
            assert discarded(snapshot) == {"too_long": 1, "bad_topic": 2, "malformed": 1}
            assert snapshot.topics["orders"].document()["discarded"] == {"too_long": 1}
            assert snapshot.topics["orders"].in_flight == 0
        found = sorted(
            (info, int(stamp), topic, b64decode(key), b64decode(value))
            for stamp, _, info, topic, key, value in LINE.findall(log.read_bytes())
            if info != b"MALFORMED"
        )
        assert found == [
            (b"BAD_TOPIC", 8, b"nowhere", b"", b"lost"),
            (b"BAD_TOPIC", 9, b"no such/name", b"", b"lost"),
            (b"LONG_MSG", 7, b"orders", b"k" * 8, bytes(8)),
        ]
        assert b"info: MALFORMED topic: 0[] key: 0[] msg: 12[Z2FyYmFnZSE=]" in log.read_bytes()


@both_engines
async def test_point_48_the_log_rotates_and_the_oldest_files_are_deleted():
    with directory() as path:
        log = path / "log" / "discards"
        discards = {
            "log_path": str(log),
            "log_max_prefix_bytes": 30_000,
            "log_max_file_bytes": 500_000,
            "log_max_archive_bytes": 1_000_000,
        }
        values = {"discards": discards, "topics": {"orders": {"max_message_bytes": 100}}}
        async with rig(values) as r:
            for start in range(0, 100, 10):
                stamps = range(start, start + 10)
                await r.send(*(message("orders", bytes(30_000), timestamp_ms=n) for n in stamps))
                await r.settled(start + 10)
                await r.gateway.reports.scribe.flush()
        old = sorted(log.parent.glob("discards.*"), key=lambda file: int(file.suffix[1:]))
        assert len(old) >= 2
        assert sum(file.stat().st_size for file in old) <= 1_000_000
        assert all(file.stat().st_size <= 500_000 for file in (*old, log))
        found = [
            int(stamp)
            for file in (*old, log)
            for stamp, _, info, _, _, value in LINE.findall(file.read_bytes())
            if info == b"LONG_MSG" and b64decode(value) == bytes(30_000)
        ]
        assert found == list(range(100 - len(found), 100))
        assert 20 < len(found) < 100


async def test_a_discard_log_that_cannot_be_written_stops_nothing():
    with directory() as path:
        (path / "file").write_text("")
        values = {**HTTP, "discards": {"log_path": f"{path}/file/discards"}}
        async with rig(values) as r:
            await r.send(message("nowhere", b"1"), message("orders", b"1"))
            await r.settled(2)
            await r.gateway.reports.scribe.flush()
            found = await document(r, "/readyz")
            assert found["ready"]
            assert any("discard log" in warning for warning in found["warnings"])
            assert r.gateway.reports.log is not None
            assert r.gateway.reports.log.file.dropped == 1


@both_engines
async def test_debug_files_show_the_way_of_messages_of_chosen_topics():
    with directory() as path:
        values = {
            **HTTP,
            "debug": {"directory": f"{path}/debug"},
        }
        async with rig(values, topics={"orders": 1, "other": 1}) as r:
            topics = "/msg_debug/get_topics"
            assert "No message debug topics" in (await ask(r, topics))[1]
            await r.send(message("orders", b"before"), message("other", b"before"))
            await r.settled(2)
            status, text, _ = await ask(r, "/msg_debug/add_topic/orders", "POST")
            assert (status, text) == (200, "Enabled debug topic [orders]\n")
            assert (await ask(r, "/msg_debug/add_topic/orders", "POST"))[1].startswith("Failed")
            assert (await ask(r, "/msg_debug/add_topic/%3Cb%3E", "POST"))[0] == 400
            assert (await ask(r, topics))[1] == "topic: [orders]\n"
            await r.send(message("orders", b"value", key=b"k"), message("other", b"value"))
            await r.settled(4)
            await r.gateway.reports.scribe.flush()
            for name in ("msg_receive", "msg_send", "msg_got_ack"):
                line = r"ts: \d+ topic: 6\[orders\] key: 4\[aw==\] value: 8\[dmFsdWU=\]\n"
                assert re.fullmatch(line, text_of(path, name)), name
            assert (await ask(r, "/msg_debug/del_topic/orders", "POST"))[1].startswith("Disabled")
            await ask(r, "/msg_debug/add_all_topics", "POST")
            assert "All message debug topics" in (await ask(r, topics))[1]
            await r.send(message("other", b"value"))
            await r.settled(5)
            await r.gateway.reports.scribe.flush()
            assert "[other]" in text_of(path, "msg_got_ack")
            await ask(r, "/msg_debug/truncate_files", "POST")
            assert text_of(path, "msg_got_ack") == ""
            await ask(r, "/msg_debug/del_all_topics", "POST")
            await r.send(message("other", b"value"))
            await r.settled(6)
            await r.gateway.reports.scribe.flush()
            assert text_of(path, "msg_receive") == ""


async def test_without_a_directory_debugging_is_refused_with_the_reason():
    async with rig(HTTP) as r:
        status, text, _ = await ask(r, "/msg_debug/add_all_topics", "POST")
        assert status == 409
        assert "`directory` in [debug]" in text


# ---------------------------------------------------------------- access


async def test_a_host_of_another_name_is_refused():
    """A page of another site can let its own name point to 127.0.0.1 (DNS rebinding)."""
    async with rig(HTTP) as r:
        assert r.gateway.http is not None
        port = r.gateway.http.port
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "10.0.0.1"):
            for method, path in (("GET", "/accounting/json"), ("POST", "/metadata_update")):
                assert (await ask(r, path, method, headers={"Host": host}))[0] == 403
        for host in (f"localhost:{port}", "LOCALHOST", f"127.0.0.1:{port}", f"[::1]:{port}"):
            assert (await ask(r, "/accounting/json", headers={"Host": host}))[0] == 200


async def test_a_page_of_another_site_may_not_change_the_gateway():
    async with rig(HTTP) as r:
        assert r.gateway.http is not None
        own = r.gateway.http.where
        for origin in ("http://evil.example", "null", "http://127.0.0.1:1"):
            sent = {"Origin": origin}
            assert (await ask(r, "/metadata_update", "POST", headers=sent))[0] == 403
        assert (await ask(r, "/metadata_update", "POST", headers={"Origin": own}))[0] == 200


async def test_with_a_token_everything_but_healthz_needs_it():
    with directory() as path:
        (path / "token").write_text("0123456789abcdef\n")
        values = {"http": {"port": 0, "token_file": f"{path}/token"}}
        async with rig(values) as r:
            assert (await ask(r, "/healthz"))[0] == 200
            for where in ("/", "/readyz", "/metrics", "/discards/json", "/nope"):
                assert (await ask(r, where))[0] == 401
            for wrong in ("Bearer x", "Basic !", "Basic eDp5", "0123456789abcdef", "Bearer \xff"):
                sent = {"Authorization": wrong}
                assert (await ask(r, "/readyz", headers=sent))[0] == 401
            right = {"Authorization": "Bearer 0123456789abcdef"}
            assert (await ask(r, "/readyz", headers=right))[0] == 200
            assert (await ask(r, "/nope", headers=right))[0] == 404
            password = "Basic " + b64encode(b"anybody:0123456789abcdef").decode()
            assert (await ask(r, "/", headers={"Authorization": password}))[0] == 200
            foreign = {**right, "Origin": "http://evil.example"}
            assert (await ask(r, "/metadata_update", "POST", headers=foreign))[0] == 403


async def test_readyz_tells_why_a_gateway_is_not_ready():
    async with rig(HTTP) as r:
        assert (await document(r, "/readyz"))["reasons"] == []
        r.gateway.inputs[0].intake.stop()
        status, body, _ = await ask(r, "/readyz")
        found = json.loads(body)
        assert (status, found["ready"]) == (503, False)
        assert found["reasons"] == [f"the input {r.gateway.inputs[0].where} does not run"]


async def test_readyz_does_not_need_kafka():
    with directory() as path:
        settings = GatewaySettings.of(configuration(path, HTTP), bootstrap_servers="127.0.0.1:1")
        async with Gateway(settings) as gateway:
            found = await document(gateway, "/readyz")
            assert found["ready"]
            assert any("no broker is reachable" in warning for warning in found["warnings"])


async def test_names_of_topics_that_do_not_exist_are_no_labels():
    async with rig(HTTP) as r:
        await r.send(message("orders", b"1"), *(message(f"made-up-{n}", b"1") for n in range(300)))
        await r.settled(301)
        text = (await ask(r, "/metrics"))[1]
        assert "made-up" not in text
        assert 'aiokq_gateway_discarded_total{reason="bad_topic",topic=""} 300.0' in text
        assert 'aiokq_gateway_acked_total{topic="orders"} 1.0' in text


# ---------------------------------------------------------------- under load


@both_engines
async def test_point_49_a_sender_loses_nothing_in_a_storm_of_requests():
    """Each report is asked for again and again while a sender that never waits sends datagrams."""
    async with rig(HTTP) as r:
        assert r.gateway.http is not None
        where = r.gateway.http.where
        for n in range(2000):
            r.gateway.accounting._of(f"topic-{n}").received += 0
        await r.send(message("orders", b"first"))
        await r.settled(1)
        opened = r.socket()
        opened.setblocking(False)

        def send() -> None:
            for n in range(2000):
                while True:
                    try:
                        opened.send(message("orders", b"%d" % n))
                        break
                    except BlockingIOError:
                        time.sleep(0.0002)
                time.sleep(0.0005)

        async def storm(session: aiohttp.ClientSession, path: str) -> None:
            while True:
                async with session.get(where + path) as response:
                    assert response.status == 200
                    await response.read()
                if sending.done():
                    return

        sending = asyncio.create_task(asyncio.to_thread(send))
        async with aiohttp.ClientSession() as session:
            paths = ("/queues/json", "/accounting/json", "/discards/json", "/metrics", "/")
            await asyncio.gather(*(storm(session, path) for path in paths * 2))
        await sending
        snapshot = await r.settled(2001)
        assert snapshot.total.acked == 2001


async def test_the_queue_report_of_5000_topics_is_computed_seldom():
    async with rig(HTTP) as r:
        for n in range(5000):
            slot = r.gateway.pool.register(b"topic-%d" % n, batch_messages=1000)
            r.gateway.accounting._slots[slot] = f"topic-{n}"
        r.gateway.pool.feed(b"".join(message(f"topic-{n}", b"v") for n in range(5000)))
        made = 0
        inner = r.gateway.reports.queues

        def counted() -> Any:
            nonlocal made
            made += 1
            return inner()

        r.gateway.reports.queues = counted  # type: ignore[method-assign]
        began = time.perf_counter()
        async with aiohttp.ClientSession() as session:
            assert r.gateway.http is not None
            for _ in range(100):
                async with session.get(r.gateway.http.where + "/queues/json") as response:
                    assert len(json.loads(await response.read())["sending"]) == 5000
        spent = time.perf_counter() - began
        assert made < 50
        assert spent < 60
