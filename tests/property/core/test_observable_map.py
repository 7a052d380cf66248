"""Random programs of emits, subscriptions and closings against a model of the rules."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aiokq.core.observable_map import ObservableMap, Subscription

KEYS = st.sampled_from("abc")
VALUES = st.integers(0, 2)

STEP = st.one_of(
    st.tuples(st.just("emit"), KEYS, VALUES),
    st.tuples(st.just("subscribe"), st.booleans(), st.none()),
    st.tuples(st.just("close"), st.integers(0, 5), st.none()),
    st.tuples(st.just("forget"), KEYS, st.none()),
)


@given(st.lists(STEP, max_size=40))
def test_every_subscriber_sees_the_replay_then_each_change_once_in_order(steps):
    """Lost, doubled or reordered events leave a listener with a wrong picture for good."""
    signal: ObservableMap[str, int] = ObservableMap()
    latest: dict[str, int] = {}
    seen: list[list[tuple[str, int]]] = []
    expected: list[list[tuple[str, int]]] = []
    open_: list[Subscription[str, int]] = []
    for step, first, second in steps:
        if step == "emit":
            news = latest.get(first) != second or first not in latest
            assert signal.emit(first, second) is news
            latest[first] = second
            if news:
                for index, subscription in enumerate(open_):
                    if not subscription.closed:
                        expected[index].append((first, second))
        elif step == "subscribe":
            events: list[tuple[str, int]] = []
            seen.append(events)
            expected.append(list(latest.items()) if first else [])
            open_.append(signal.subscribe(lambda *event, to=events: to.append(event), replay=first))
        elif step == "close" and first < len(open_):
            open_[first].close()
        elif step == "forget":
            signal.forget(first)
            latest.pop(first, None)
    assert seen == expected
    assert signal.snapshot() == latest


@given(
    reactions=st.dictionaries(
        st.tuples(KEYS, VALUES), st.lists(st.tuples(KEYS, VALUES), max_size=3), max_size=6
    ),
    start=st.tuples(KEYS, VALUES),
    reactor=st.integers(0, 2),
)
def test_all_subscribers_see_one_order_however_one_of_them_reacts(reactions, start, reactor):
    """Run to completion: nested emits neither overtake nor recurse."""
    signal: ObservableMap[str, int] = ObservableMap()
    seen: list[list[tuple[str, int]]] = [[], [], []]
    budget = 50
    depth = 0

    def react(index: int, key: str, value: int) -> None:
        nonlocal budget, depth
        assert depth == 0
        depth += 1
        seen[index].append((key, value))
        if index == reactor:
            for event in reactions.get((key, value), ()):
                if budget:
                    budget -= 1
                    signal.emit(*event)
        depth -= 1

    for index in range(3):
        signal.subscribe(lambda key, value, i=index: react(i, key, value))
    signal.emit(*start)
    assert seen[0] == seen[1] == seen[2]
    for key, value in signal.snapshot().items():
        assert [v for k, v in seen[0] if k == key][-1] == value
