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


def test_a_large_change_is_a_bounded_number_of_lines(lines, clock):
    Audit(clock).changed(client(), "ACL created", map(str, range(1000)))
    assert len(lines.records) == module.MOST_ITEMS + 1
    assert texts(lines)[-1].endswith("more=900")


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


def test_different_lines_are_limited(lines, clock):
    """A client that asks for a million names writes a bounded number of lines."""
    audit = Audit(clock)
    for number in range(5000):
        deny(audit, f"t{number}")
    assert len(lines.records) == module.BURST
    clock.now += 1
    deny(audit, "after")
    assert texts(lines)[-1].endswith(f"left_out={5000 - int(module.BURST)}")
    for number in range(100):
        deny(audit, f"u{number}")
    assert len(lines.records) == module.BURST + module.LINES_PER_SECOND
    assert len(audit._limits["aiokq.audit.denial"]._known) <= module.MOST_KEYS


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
