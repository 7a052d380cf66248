"""The audit log: what it tells, and that clients cannot fill a disk with it."""

from __future__ import annotations

import json
import logging

import pytest

from aiokq.broker.security import audit as module
from aiokq.broker.security.audit import Audit
from aiokq.connection.principal import Principal
from aiokq.connection.request_context import RequestContext
from aiokq.core.acl_types import Operation, ResourceType

PRODUCE = 0


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def client(name="alice"):
    context = RequestContext(1, "192.0.2.7:5000", "192.0.2.7", "EXTERNAL")
    context.session.principal = Principal.user(name)
    return context


def deny(audit, name="orders", who="alice"):
    audit.denied(client(who), PRODUCE, Operation.WRITE, ResourceType.TOPIC, name)


def texts(caplog):
    return [each.getMessage() for each in caplog.records]


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.DEBUG, "aiokq.audit")
    return caplog


def test_a_denial_names_who_what_and_where(lines, clock):
    deny(Audit(clock))
    [each] = lines.records
    assert (each.name, each.levelno) == ("aiokq.audit.denial", logging.INFO)
    assert each.getMessage() == (
        "operation denied: principal=User:alice host=192.0.2.7 listener=EXTERNAL api=Produce "
        "operation=WRITE resource=TOPIC:orders"
    )
    assert each.audit == {
        "event": "operation denied",
        "principal": "User:alice",
        "host": "192.0.2.7",
        "listener": "EXTERNAL",
        "api": "Produce",
        "operation": "WRITE",
        "resource": "TOPIC:orders",
    }
    json.dumps(each.audit)


def test_a_failed_login_names_address_and_mechanism(lines, clock):
    Audit(clock).login_failed(client(), "PLAIN", "invalid credentials")
    [each] = lines.records
    assert (each.name, each.levelno) == ("aiokq.audit.login", logging.WARNING)
    assert each.getMessage() == (
        "login failed: host=192.0.2.7 listener=EXTERNAL mechanism=PLAIN "
        'reason="invalid credentials"'
    )


def test_a_change_names_who_made_it(lines, clock):
    Audit(clock).changed(client(), "ACL created", ["User:bob Allow Read Topic:t", "another"])
    assert [each.name for each in lines.records] == ["aiokq.audit.change"] * 2
    assert texts(lines)[0] == (
        "ACL created: principal=User:alice host=192.0.2.7 listener=EXTERNAL "
        'item="User:bob Allow Read Topic:t"'
    )


def test_a_large_change_is_logged_whole_in_few_lines(lines, clock):
    """Only the number of the changes after the hundredth was logged."""
    items = [f"User:u{number} Allow Read Topic:t" for number in range(1050)]
    Audit(clock).changed(client(), "ACL created", iter(items))
    assert len(lines.records) == module.MOST_ITEMS + 10
    logged = []
    for each in lines.records:
        logged += each.audit.get("items") or [each.audit["item"]]
        assert each.audit["principal"] == "User:alice"
    assert logged == items
    assert '"User:u1049 Allow Read Topic:t"]' in texts(lines)[-1]


def test_an_item_is_cut(lines, clock):
    Audit(clock).changed(client(), "ACL created", ["x" * 30_000] * 150)
    assert max(map(len, texts(lines))) < (module.LONGEST_VALUE + 10) * module.MOST_ITEMS


def test_equal_lines_are_counted(lines, clock):
    audit = Audit(clock)
    for _ in range(500):
        deny(audit)
    assert len(lines.records) == 1
    clock.now += module.REPEAT_SECONDS
    deny(audit)
    assert texts(lines)[1].endswith("times=500")
    clock.now += module.REPEAT_SECONDS
    deny(audit)
    assert "times" not in texts(lines)[2]


def test_different_lines_of_a_client_are_limited(lines, clock):
    """A client that asks for a million names writes a bounded number of lines."""
    audit = Audit(clock)
    for number in range(5000):
        deny(audit, f"t{number}")
    assert len(lines.records) == module.CLIENT_BURST
    clock.now += 1
    deny(audit, "after")
    assert texts(lines)[-1].endswith(f"left_out={5000 - int(module.CLIENT_BURST)}")
    for number in range(100):
        deny(audit, f"u{number}")
    assert len(lines.records) == module.CLIENT_BURST + module.CLIENT_LINES_PER_SECOND


def test_a_client_cannot_use_up_the_lines_of_others(lines, clock):
    """Denials of others were left out while one client asked for many names."""
    audit = Audit(clock)
    for second in range(120):
        for number in range(200):
            deny(audit, f"t{second}-{number}")
        if not second % 10:
            deny(audit, f"secret-{second}", who="mallory")
        clock.now += 1
    found = [each.audit for each in lines.records if each.audit["principal"] == "User:mallory"]
    assert [each["resource"] for each in found] == [
        f"TOPIC:secret-{second}" for second in range(0, 120, 10)
    ]


def test_many_clients_cannot_use_up_the_lines_of_one_that_was_quiet(lines, clock):
    """The logger has lines for the first denial of a client, beside the common ones."""
    audit = Audit(clock)
    for second in range(60):
        for number in range(40):
            deny(audit, f"t{second}", who=f"flood-{number}")
            deny(audit, f"u{second}", who=f"flood-{number}")
        clock.now += 1
    clock.now += 5
    before = len(lines.records)
    for number in range(40):
        deny(audit, "x", who=f"flood-{number}")
    deny(audit, "secret", who="mallory")
    assert lines.records[-1].audit["principal"] == "User:mallory"
    assert before <= (
        module.BURST
        + module.FIRST_LINES_BURST
        + 60 * (module.LINES_PER_SECOND + module.FIRST_LINES_PER_SECOND)
        + 2 * module.MOST_SUMMARIES
    )


def test_what_was_left_out_is_told_by_client(lines, clock):
    """Also if the client is never heard of again."""
    audit = Audit(clock)
    for number in range(500):
        deny(audit, f"t{number}", who="alice")
    for number in range(300):
        deny(audit, f"t{number}", who="bob")
    clock.now += module.REPEAT_SECONDS
    lines.clear()
    deny(audit, "t", who="carol")
    summaries = [each.audit for each in lines.records if each.audit["event"] == "lines left out"]
    assert [(each["principal"], each["left_out"]) for each in summaries] == [
        ("User:alice", 500 - module.CLIENT_BURST),
        ("User:bob", 300 - module.CLIENT_BURST),
    ]
    clock.now += module.REPEAT_SECONDS
    lines.clear()
    deny(audit, "t2", who="carol")
    assert len(lines.records) == 1


def test_the_memory_of_the_limits_is_bounded(lines, clock):
    audit = Audit(clock)
    for number in range(3000):
        deny(audit, "n" * 60_000 + str(number), who=f"user-{number}")
        clock.now += 0.2
    for number in range(300):
        deny(audit, f"t{number}", who="one")
        clock.now += 1
    limit = audit._limits["aiokq.audit.denial"]
    assert len(limit._clients) <= module.MOST_CLIENTS
    for share in limit._clients.values():
        assert len(share.known) <= module.MOST_KEYS
        for key in share.known:
            assert len(repr(key)) < 2 * module.LONGEST_VALUE
    # The lines left out of clients that were forgotten are told, too.
    for number in range(2 * module.MOST_CLIENTS):
        for line in range(5):
            deny(audit, f"t{line}", who=f"flood-{number}")
    clock.now += module.REPEAT_SECONDS
    lines.clear()
    deny(audit, "last", who="one")
    told = sum(each.audit.get("left_out", 0) for each in lines.records)
    assert told >= 5 * 2 * module.MOST_CLIENTS - module.BURST - module.FIRST_LINES_BURST
    assert any(each.audit["principal"] == "others" for each in lines.records)


def test_a_long_principal_is_not_remembered_whole(lines, clock):
    """Regression: each of up to 256 clients left its name of some 100 KB, twice."""
    audit = Audit(clock)
    for number in range(3):
        deny(audit, who=f"{number}" + "n" * 60_000)
    limit = audit._limits["aiokq.audit.denial"]
    assert len(limit._clients) == len(lines.records) == 3
    for client_, share in limit._clients.items():
        assert len(repr(client_)) < 2 * module.LONGEST_VALUE
        for key in share.known:
            assert len(repr(key)) < 2 * module.LONGEST_VALUE
    assert lines.records[1].audit["principal"] == "User:1" + "n" * 250 + "..."


def test_failed_logins_are_shared_by_address(lines, clock):
    audit = Audit(clock)
    for number in range(5000):
        audit.login_failed(client(), "PLAIN", f"reason {number}")
    other = RequestContext(2, "192.0.2.9:5000", "192.0.2.9", "EXTERNAL")
    audit.login_failed(other, "PLAIN", "invalid credentials")
    assert lines.records[-1].audit["host"] == "192.0.2.9"


def test_the_addresses_of_a_network_of_ipv6_have_one_limit(lines, clock):
    """Regression: one client with many addresses kept failed logins of others out of the log."""
    audit = Audit(clock)
    for number in range(2000):
        host = f"2001:db8::{number + 1:x}"
        attacker = RequestContext(1, f"[{host}]:5000", host, "EXTERNAL")
        audit.login_failed(attacker, "PLAIN", "invalid credentials")
        audit.denied(attacker, PRODUCE, Operation.WRITE, ResourceType.TOPIC, f"t{number}")
    assert len(lines.records) == 2 * module.CLIENT_BURST
    assert lines.records[2].audit["host"] == "2001:db8::2"
    other = RequestContext(2, "[2001:db8:0:1::9]:5000", "2001:db8:0:1::9", "EXTERNAL")
    audit.login_failed(other, "PLAIN", "invalid credentials")
    assert lines.records[-1].audit["host"] == "2001:db8:0:1::9"
    clock.now += module.REPEAT_SECONDS
    audit.login_failed(other, "PLAIN", "another reason")
    summary = lines.records[-2].audit
    assert (summary["event"], summary["host"]) == ("lines left out", "2001:db8::/64")


def test_the_loggers_have_limits_of_their_own(lines, clock):
    audit = Audit(clock)
    for number in range(5000):
        deny(audit, f"t{number}")
    audit.login_failed(client(), "PLAIN", "x")
    assert lines.records[-1].name == "aiokq.audit.login"


def test_a_name_cannot_forge_a_line(lines, clock):
    deny(Audit(clock), "x\n2026-01-01 INFO aiokq.audit.change: ACL created: principal=User:root")
    [text] = texts(lines)
    assert "\n" not in text
    assert 'resource="TOPIC:x\\n2026' in text


def test_a_long_name_is_cut(lines, clock):
    deny(Audit(clock), "n" * 30_000)
    assert len(texts(lines)[0]) < 500


def test_a_handler_that_fails_changes_nothing(clock, caplog):
    class Failing(logging.Handler):
        def emit(self, record):
            raise RuntimeError("disk full")

    logger = logging.getLogger("aiokq.audit")
    handler = Failing()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        deny(Audit(clock))
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
