"""Reading a damaged log by random sequences of calls of all forms gives the model's results."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.sim.reading_model import DAMAGES, END, Log
from tests.sim.reading_world import MODES, Pair, simulate

offsets = st.integers(0, END - 1)
steps = st.one_of(
    st.sampled_from(
        [("one",), ("again",), ("on",), ("next_batch",), ("record",), ("iterate",), ("records",)]
    ),
    # More of these, because iterations within a batch are the hardest case.
    st.sampled_from([("next_batch",), ("record",), ("record",), ("iterate",), ("outer",)]),
    st.sampled_from([("arrow",), ("commit",), ("wait",), ("pause",), ("resume",)]),
    st.tuples(st.just("many"), st.integers(1, 5)),
    st.tuples(st.just("ack"), st.integers(0, 20)),
    st.tuples(st.just("seek"), offsets),
)
logs = st.builds(
    Log,
    st.frozensets(offsets, max_size=4),
    st.sampled_from([None, None, *DAMAGES.values()]),
)


@settings(max_examples=150 if settings().max_examples <= 100 else settings().max_examples)
@given(
    log=logs,
    mode=st.sampled_from(sorted(MODES)),
    form=st.sampled_from(["consumer", "consumer", "stream"]),
    part=st.sampled_from(["key", "value"]),
    course=st.lists(steps, max_size=25),
    end=st.sampled_from(["close", "exception", "crash"]),
)
@example(
    log=Log(damage=DAMAGES["crc"]),
    mode="auto",
    form="consumer",
    part="value",
    course=[("many", 3), ("one",)],
    end="close",
)
@example(
    log=Log(frozenset({0, 3}), DAMAGES["truncated"]),
    mode="explicit",
    form="consumer",
    part="value",
    course=[("next_batch",), ("record",), *[("next_batch",), ("record",), ("record",)] * 3],
    end="close",
)
@example(
    log=Log(frozenset({0}), DAMAGES["decompress"]),
    mode="auto",
    form="consumer",
    part="value",
    course=[("next_batch",), ("records",), *[("next_batch",), ("records",)] * 3],
    end="close",
)
def test_any_way_of_reading_loses_nothing_and_commits_what_was_delivered(
    log: Log, mode: str, form: str, part: str, course: list[tuple[Any, ...]], end: str
) -> None:
    """Compares each step, then the records that another consumer reads after the last commit."""

    async def body(pair: Pair) -> None:
        for name, *args in course:
            await pair.step(name, *args)
        if end == "crash":
            await pair.crash()
        else:
            await pair.close(normal=end == "close")
        await pair.successor()

    simulate(body, log, mode=mode, form=form, part=part)
