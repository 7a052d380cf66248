"""Log lines of lasting failures: one at the beginning, one per minute, and one at the end."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from aiokq.cluster.first_answer import NoAnswer
from aiokq.core.errors import (
    AuthenticationFailed,
    ConnectionLost,
    CoordinatorLoadInProgress,
    KafkaError,
    NotEnoughReplicas,
    RequestTimeout,
)
from aiokq.core.log_lines import BURST
from aiokq.core.outages import Outages, cause_of


class Log:
    """An Outages object with the test's clock, and the lines that it logged."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.now = 0.0
        self.outages = Outages(lambda: self.now, logging.getLogger("aiokq.test"))
        self._caplog = caplog
        caplog.set_level(logging.DEBUG, "aiokq.test")

    @property
    def lines(self) -> list[str]:
        records = self._caplog.records
        return [record.getMessage() for record in records if record.levelno > logging.DEBUG]

    def down(self, node: int | str = 1, error: KafkaError | None = None) -> None:
        self.outages.unreachable(
            node, f"host-{node}:9092", error or ConnectionLost("refused", node=node), retry_in=1
        )

    def up(self, node: int | str = 1) -> bool:
        return self.outages.reached(f"host-{node}:9092")


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Log:
    return Log(caplog)


def test_an_outage_is_logged_at_its_beginning_each_minute_and_at_its_end(log: Log) -> None:
    """Ten failures per second for ten minutes."""
    for tick in range(6001):
        log.now = tick / 10
        log.down()
    assert log.up()
    first, *still, last = log.lines
    assert first == (
        "node unreachable: node=1 address=host-1:9092 cause=ConnectionLost error=refused (node=1)"
    )
    assert len(still) == 10
    assert still[0].startswith(
        "node unreachable, still: node=1 address=host-1:9092 lasts=60s times=601 cause="
    )
    assert last == (
        "node unreachable, over: node=1 address=host-1:9092 lasted=600s times=6001 "
        "cause=ConnectionLost"
    )


def test_rare_failures_log_no_more_than_one_line_each(log: Log) -> None:
    """On a host that drops all packets an attempt takes half a minute or several."""
    for log.now in (0, 30, 200, 230, 245, 290, 301):
        log.down()
    assert [line.split("lasts=")[1].split()[0] for line in log.lines[1:]] == [
        "200s",
        "245s",
        "301s",
    ]


def test_a_success_without_an_outage_logs_nothing(log: Log) -> None:
    """Each success is reported to Outages."""
    assert not log.up()
    log.outages.ended("commit failed", "g")
    log.outages.recovered("fetch refused", "orders-0")
    assert not log.outages.troubled
    assert log.lines == []


def test_a_flapping_outage_logs_a_few_lines_a_minute_and_one_when_it_lasts(log: Log) -> None:
    """The node goes up and down each second for ten minutes, then stays down."""
    written: list[int] = []
    for second in range(600):
        log.now = second
        log.down()
        log.now += 0.5
        log.up()
        written.append(len(log.lines))
    assert written[0] == 2
    assert all(b - a <= BURST for a, b in zip(written, written[60:], strict=False))
    assert written[-1] >= 10
    log.now += 1
    for _ in range(120):
        log.down()
        log.now += 1
    assert ", over" not in log.lines[-1]


def test_a_second_outage_is_logged_at_once(log: Log) -> None:
    """A broker that is shutting down accepts a last connection and is then gone."""
    log.down()
    log.now = 0.1
    assert log.up()
    log.now = 0.2
    log.down()
    assert len(log.lines) == 3
    assert log.lines[2].startswith("node unreachable: node=1")
    log.now = 100.2
    assert log.up()
    assert "lasted=100s times=1 " in log.lines[3]


def test_an_authentication_failure_is_a_cause_of_its_own(log: Log) -> None:
    """The credentials were changed while the broker was unreachable."""
    log.down()
    log.down(error=AuthenticationFailed("wrong password", node=1))
    assert log.up()
    assert [line.split(":")[0] for line in log.lines] == [
        "node unreachable",
        "node refuses",
        "node refuses, over",
    ]


def test_an_outage_moves_with_its_broker(log: Log) -> None:
    """The broker comes back at another address."""
    log.down()
    log.outages.moved("host-1:9092", "elsewhere:9092")
    assert not log.up()
    assert log.outages.reached("elsewhere:9092")


def test_a_cause_is_over_when_all_its_partitions_have_recovered(log: Log) -> None:
    """Several partitions fail for the same cause; the success of another one does not end it."""
    outages = log.outages
    error = NotEnoughReplicas(node=1)
    for partition in ("a-0", "a-1"):
        where = {"node": 1, "partition": partition}
        outages.failed("records are sent again", 1, error, where=where, member=partition)
    assert outages.troubled
    outages.recovered("records are sent again", "b-0")
    outages.recovered("fetch refused", "a-0")  # a different kind of failure
    outages.recovered("records are sent again", "a-0")
    assert len(log.lines) == 1
    outages.recovered("records are sent again", "a-1")
    assert len(log.lines) == 2
    assert log.lines[1].startswith(
        "records are sent again, over: node=1 partition=a-0 lasted=0s times=2 "
    )
    assert not outages.troubled


def test_lost_records_are_logged_as_an_error_with_their_number(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    """Data was lost, so an outage of the node does not hide the line."""
    log.down()
    for log.now in (0, 1, 61):
        error = RequestTimeout("not delivered", node=1)
        log.outages.lost("records are given up", "a-0", error, records=10)
    errors = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert len(errors) == 2
    assert "lasts=61s times=3 records=30 " in errors[1]
    log.outages.recovered("records are given up", "a-0")
    assert "records are given up, over" in log.lines[-1]


def with_cause(error: KafkaError, cause: BaseException) -> KafkaError:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "follows"),
    [
        (lambda: ConnectionLost("lost", node=1), True),
        (lambda: ConnectionLost("lost", node="host-1:9092"), True),
        (lambda: ConnectionLost("lost", node=2), False),
        (lambda: RequestTimeout("no answer", node=1), True),
        (lambda: RequestTimeout("no answer", node=1, origin="broker"), False),
        (lambda: NotEnoughReplicas(node=1), False),
        (lambda: CoordinatorLoadInProgress(), False),
        (lambda: ConnectionLost("no broker is known"), True),
        (lambda: with_cause(RequestTimeout("x"), ConnectionLost("lost", node=1)), True),
        (lambda: with_cause(RequestTimeout("x"), ConnectionLost("lost", node=2)), False),
        (lambda: with_cause(RequestTimeout("x"), CoordinatorLoadInProgress()), False),
        (lambda: with_cause(RequestTimeout("x"), TimeoutError()), True),
        (lambda: NoAnswer({"host-1:9092": ConnectionLost("refused", node=1)}), True),
        (
            lambda: NoAnswer(
                {
                    "host-1:9092": ConnectionLost("refused", node=1),
                    "seed:9092": ConnectionLost("refused", node="seed:9092"),
                }
            ),
            True,
        ),
        (lambda: NoAnswer({"seed:9092": ConnectionLost("refused", node="seed:9092")}), False),
        (
            lambda: NoAnswer(
                {"host-1:9092": ConnectionLost("x", node=1), "b": NotEnoughReplicas(node=2)}
            ),
            False,
        ),
    ],
)
def test_failures_caused_by_an_unreachable_node_are_not_logged_again(
    log: Log, error: Callable[[], KafkaError], follows: bool
) -> None:
    """Metadata, batches, fetches and commits all fail with the node; other causes are logged."""
    log.outages.failed("something failed", "key", error(), where={})
    assert len(log.lines) == 1  # all nodes are reachable, so the line is logged
    log.now = 1000
    log.outages.ended("something failed", "key")
    log.now = 2000
    log.down()
    before = len(log.lines)
    log.outages.failed("something failed", "key", error(), where={})
    assert (len(log.lines) == before) is follows
    if follows:
        # The failure is reported after the node is back; it still follows from the outage.
        log.now += 10
        log.up()
        before = len(log.lines)
        log.outages.failed("something failed", "key", error(), where={})
        assert len(log.lines) == before


def test_ended_and_abandoned_outages_are_forgotten(log: Log) -> None:
    """A client that runs for years uses many partitions."""
    for n in range(1000):
        error = NotEnoughReplicas(node=n)
        where = {"node": n}
        log.outages.failed("records are sent again", n, error, where=where, member=f"a-{n}")
        log.now += 10
    assert len(log.outages._runs) < 70
    assert len(log.outages._memberships) < 70


def test_causes_have_kafkas_error_names() -> None:
    assert cause_of(NotEnoughReplicas()) == "NOT_ENOUGH_REPLICAS"
    assert cause_of(ConnectionLost("x")) == "ConnectionLost"
