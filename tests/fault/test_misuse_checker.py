"""The checker of the misuse rounds reports each broken invariant; a seed always gives one plan."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aiokq.testing import AnomalyKind, Isolation
from tests.fault.misuse import checked, checker
from tests.fault.misuse.checked import condemned, judged
from tests.fault.misuse.checker import Aftermath, check, unread
from tests.fault.misuse.history import Commit, History, Sent, State
from tests.fault.misuse.plan import KINDS, make_plan

PARTITION = ("kept", 0)


def a_good_round() -> tuple[History, Aftermath]:
    """Three records acknowledged, read by a group and committed; one failed, one was rejected."""
    history = History()
    records: dict[int, bytes] = {}
    for offset in range(3):
        sent = offered(history)
        sent.state = State.ACKNOWLEDGED
        sent.accepted_at, sent.outcome_at = 1.0, 2.0
        sent.partition, sent.offset = 0, offset
        records[offset] = sent.value
        history.groups["g"].hand(PARTITION, offset, sent.value)
        history.groups["g"].finish(PARTITION, offset, 10.0 + offset)
    failed = offered(history)
    failed.state, failed.accepted_at, failed.outcome_at = State.FAILED, 1.0, 5.0
    failed.may_be_written = False
    refused = offered(history)
    refused.state = State.REFUSED
    unknown = offered(history)
    unknown.state = State.UNKNOWN
    history.commits.append(Commit("g", PARTITION, 2, 11.5))
    after = Aftermath(
        log={PARTITION: records}, ends={PARTITION: 3}, committed={("g", PARTITION): 3}
    )
    return history, after


def offered(history: History, *, idempotent: bool = True) -> Sent:
    return history.offer("p", "kept", 0.0, limit=5.0, idempotent=idempotent, ordered=True)


def in_state(history: History, state: State) -> Sent:
    return next(sent for sent in history.sent.values() if sent.state is state)


def invariants(history: History, after: Aftermath) -> set[str]:
    return {violation.invariant for violation in check(history, after)}


def test_a_good_round_is_not_condemned() -> None:
    assert check(*a_good_round()) == []


Break = Callable[[History, Aftermath, dict[int, bytes]], None]


def lose(history: History, after: Aftermath, log: dict[int, bytes]) -> None:
    del log[2]
    history.groups["g"].handed[PARTITION].pop(2)


def move(history: History, after: Aftermath, log: dict[int, bytes]) -> None:
    log[7] = log.pop(2)
    history.groups["g"].handed[PARTITION].pop(2)


def repeat(history: History, after: Aftermath, log: dict[int, bytes]) -> None:
    log[3] = log[2]


def write_refused(history: History, after: Aftermath, log: dict[int, bytes]) -> None:
    log[3] = in_state(history, State.REFUSED).value


def write_failed(history: History, after: Aftermath, log: dict[int, bytes]) -> None:
    log[3] = in_state(history, State.FAILED).value


def write_unsent(history: History, after: Aftermath, log: dict[int, bytes]) -> None:
    log[3] = b"nobody's"


def swap(history: History, after: Aftermath, log: dict[int, bytes]) -> None:
    first, second = (sent for sent in list(history.sent.values())[:2])
    first.offset, second.offset = second.offset, first.offset
    log[0], log[1] = log[1], log[0]
    history.groups["g"].handed[PARTITION].update(log)


def forget_outcome(history: History, after: Aftermath, log: dict[int, bytes]) -> None:
    in_state(history, State.FAILED).state = State.ACCEPTED


def hang_in_call(history: History, after: Aftermath, log: dict[int, bytes]) -> None:
    in_state(history, State.REFUSED).state = State.OFFERED


def answer_late(history: History, after: Aftermath, log: dict[int, bytes]) -> None:
    in_state(history, State.FAILED).outcome_at = 1.0 + 5.0 + checker.OUTCOME_SLACK + 0.1


def commit_unseen(history: History, after: Aftermath, log: dict[int, bytes]) -> None:
    history.groups["g"].handed[PARTITION].pop(1)
    history.groups["g"].finished[PARTITION].pop(1)


def commit_unfinished(history: History, after: Aftermath, log: dict[int, bytes]) -> None:
    history.groups["g"].finished[PARTITION].pop(2)


def commit_too_early(history: History, after: Aftermath, log: dict[int, bytes]) -> None:
    history.commits.append(Commit("g", PARTITION, 2, 10.5))  # offset 1 was finished only at 11


def commit_beyond(history: History, after: Aftermath, log: dict[int, bytes]) -> None:
    after.committed = {("g", PARTITION): 4}


def hand_over_another(history: History, after: Aftermath, log: dict[int, bytes]) -> None:
    history.groups["g"].handed[PARTITION][1] = b"another"


def end_broker(history: History, after: Aftermath, log: dict[int, bytes]) -> None:
    after.exits.append("exit code 1")


def log_traceback(history: History, after: Aftermath, log: dict[int, bytes]) -> None:
    after.log_lines.append("Traceback (most recent call last):")


def damage(history: History, after: Aftermath, log: dict[int, bytes]) -> None:
    after.damage.append("a hole")


def keep_broker_sockets(history: History, after: Aftermath, log: dict[int, bytes]) -> None:
    after.sockets = (3, 4)


def keep_client_sockets(history: History, after: Aftermath, log: dict[int, bytes]) -> None:
    after.client_sockets = (3, 4)


def keep_memory(history: History, after: Aftermath, log: dict[int, bytes]) -> None:
    after.memory = (50 << 20, (51 << 20) + checker.MEMORY_SLACK)


def keep_task(history: History, after: Aftermath, log: dict[int, bytes]) -> None:
    after.tasks.append("sender")


BREAKS: list[tuple[Break, str]] = [
    (lose, checker.LOST),
    (move, checker.LOST),
    (repeat, checker.TWICE),
    (write_refused, checker.PHANTOM),
    (write_failed, checker.PHANTOM),
    (write_unsent, checker.PHANTOM),
    (swap, checker.REORDERED),
    (forget_outcome, checker.LATE),
    (hang_in_call, checker.LATE),
    (answer_late, checker.LATE),
    (commit_unseen, checker.UNSEEN),
    (commit_unfinished, checker.UNSEEN),
    (commit_too_early, checker.UNSEEN),
    (commit_beyond, checker.BEYOND),
    (hand_over_another, checker.OTHER),
    (end_broker, checker.DOWN),
    (log_traceback, checker.BROKER_LOG),
    (damage, checker.DAMAGE),
    (keep_broker_sockets, checker.GROWTH),
    (keep_client_sockets, checker.GROWTH),
    (keep_memory, checker.GROWTH),
    (keep_task, checker.GROWTH),
]


@pytest.mark.parametrize(("broken", "invariant"), BREAKS, ids=[b.__name__ for b, _ in BREAKS])
def test_each_broken_invariant_is_condemned_and_nothing_else(broken: Break, invariant: str) -> None:
    history, after = a_good_round()
    log = after.log[PARTITION]
    assert isinstance(log, dict)
    broken(history, after, log)
    assert invariants(history, after) == {invariant}


def with_polls(history: History) -> History:
    """Add the polls of one member that was handed all that the group was handed."""
    history.assigned("g.1", [PARTITION], 2.0)
    for partition, handed in history.groups["g"].handed.items():
        for offset, value in handed.items():
            records = [(partition, offset, value)]
            history.handed("g.1", "g", records, 10.0 + offset, Isolation.READ_UNCOMMITTED)
    return history


CONDEMNED: list[tuple[Break, set[AnomalyKind]]] = [
    (lose, {AnomalyKind.UNSEEN}),
    (move, {AnomalyKind.INCONSISTENT_OFFSETS}),
    (repeat, {AnomalyKind.DUPLICATE}),
    (write_refused, {AnomalyKind.ABORTED_READ}),
    (write_failed, {AnomalyKind.ABORTED_READ}),
    (swap, {AnomalyKind.NONMONOTONIC_SEND}),
    (hand_over_another, {AnomalyKind.INCONSISTENT_OFFSETS}),
]


@pytest.mark.parametrize(("broken", "kinds"), CONDEMNED, ids=[b.__name__ for b, _ in CONDEMNED])
def test_the_checker_of_aiokq_testing_condemns_records(
    broken: Break, kinds: set[AnomalyKind]
) -> None:
    """It does not judge commits, late outcomes and the broker; `checker.check` does."""
    history, after = a_good_round()
    log = after.log[PARTITION]
    assert isinstance(log, dict)
    broken(history, after, log)
    with_polls(history)
    assert {each.kind for each in judged(history, after).condemned} == kinds
    assert [each.invariant for each in condemned(history, after)] == [checked.CONDEMNED]


def test_the_checker_of_aiokq_testing_condemns_nothing_in_a_good_round() -> None:
    history, after = a_good_round()
    assert condemned(with_polls(history), after) == []


@pytest.mark.parametrize("offsets", [(0, 2), (1, 1), (1, 0)], ids=["skipped", "twice", "back"])
def test_the_checker_of_aiokq_testing_condemns_the_order_of_a_consumer(
    offsets: tuple[int, int],
) -> None:
    """Within one assignment a consumer is handed each record from its position on, once."""
    history, after = a_good_round()
    for offset in offsets:
        records = [(PARTITION, offset, after.log[PARTITION][offset])]
        history.handed("g.1", "g", records, 20.0, Isolation.READ_UNCOMMITTED)
    assert len(condemned(history, after)) == 1
    del history.read[:]
    for offset in offsets:
        history.assigned("g.1", [PARTITION], 20.0)
        records = [(PARTITION, offset, after.log[PARTITION][offset])]
        history.handed("g.1", "g", records, 20.0, Isolation.READ_UNCOMMITTED)
    assert condemned(history, after) == []


def test_a_producer_without_idempotence_may_write_a_record_at_each_attempt() -> None:
    history, after = a_good_round()
    log = after.log[PARTITION]
    assert isinstance(log, dict)
    repeat(history, after, log)
    assert len(condemned(history, after)) == 1
    for sent in history.sent.values():
        sent.idempotent = False
    assert condemned(history, after) == []


def test_a_value_that_changes_between_two_hand_overs_is_told() -> None:
    history, _ = a_good_round()
    assert history.groups["g"].hand(PARTITION, 1, b"another") is not None
    assert history.groups["g"].hand(PARTITION, 9, b"new") is None


def test_a_time_in_which_the_machine_stood_still_is_not_the_clients() -> None:
    history, after = a_good_round()
    answer_late(history, after, {})
    history.delays.append((4.0, 2.0))
    assert check(history, after) == []
    history.delays[0] = (100.0, 2.0)
    assert invariants(history, after) == {checker.LATE}


def test_records_that_a_group_was_not_handed_are_counted() -> None:
    history, after = a_good_round()
    assert unread(history, "g", after, {"kept"}) == {}
    history.groups["g"].handed[PARTITION].pop(1)
    assert unread(history, "g", after, {"kept"}) == {PARTITION: 1}
    assert unread(history, "g", after, {"another"}) == {}


def test_records_of_topics_that_were_deleted_only_need_an_outcome() -> None:
    history, after = a_good_round()
    after.log, after.ends, after.committed = {}, {}, {}
    assert check(history, after) == []
    forget_outcome(history, after, {})
    assert invariants(history, after) == {checker.LATE}


def test_many_violations_of_one_invariant_are_counted() -> None:
    history, after = a_good_round()
    after.exits += ["exit code 1"] * 9
    found = check(history, after)
    assert len(found) == 6
    assert "4 more" in found[-1].what


def test_a_plan_is_a_function_of_its_seed() -> None:
    for seed in range(50):
        assert make_plan(seed) == make_plan(seed)
    assert make_plan(1) != make_plan(2)


def test_what_is_switched_off_leaves_the_rest_of_a_plan_as_it_is() -> None:
    kinds = [kind for kind in KINDS if kind not in ("kill", "garbage", "poison")]
    for seed in range(50):
        whole, part = make_plan(seed), make_plan(seed, kinds)
        assert part.actions == tuple(a for a in whole.actions if a.kind in kinds)
        assert part.producers == whole.producers
        assert part.broker_settings == whole.broker_settings
        assert not any(group.poison for group in part.groups)


def test_every_kind_is_drawn_by_some_seed() -> None:
    drawn: set[str] = set()
    for seed in range(200):
        plan = make_plan(seed)
        drawn |= {action.kind for action in plan.actions}
        drawn |= {"poison" for group in plan.groups if group.poison}
        drawn |= {"confluent" for group in plan.groups if group.style == "confluent"}
    assert drawn == set(KINDS)
