"""The order in which processes get files and tests, and that all named files are there."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("xdist")

from tests.longest_first import APART, OTHERS, SECONDS, LongestFirst, seconds_of

ROOT = Path(__file__).resolve().parents[2]


class Node:
    """A process that only remembers what it gets."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.shutting_down = False
        self.got: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.got += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def scheduled(tests: list[str], nodes: list[Any]) -> Any:
    options = {"loadscopereorder": True, "tx": [f"{len(nodes)}*popen"]}
    config: Any = SimpleNamespace(option=SimpleNamespace(**options), getvalue=options.get)
    work = LongestFirst(config)
    for node in nodes:
        work.add_node(node)
    for node in nodes:
        work.add_node_collection(node, tests)
    work.schedule()
    return work


def test_the_files_exist() -> None:
    assert [name for name in SECONDS if not (ROOT / name).is_file()] == []
    assert all(seconds > OTHERS for seconds in SECONDS.values())


def test_the_longest_begin_and_have_short_ones_behind_them() -> None:
    """Tests of a file in `APART` go to different processes, and each test to one."""
    apart = "tests/interop/test_quotas.py"
    long = "tests/interop/test_sasl_on_broker.py"
    short = [f"tests/short_{n}.py::test" for n in range(4)]
    tests = [*short, f"{apart}::a", f"{apart}::b", f"{long}::c", f"{long}::d"]
    nodes = [Node("gw0"), Node("gw1")]
    work = scheduled(tests, nodes)
    assert apart in APART
    assert seconds_of(f"{apart}::a") < seconds_of(f"{long}::c")
    first, second = ([tests[index] for index in node.got] for node in nodes)
    assert first[:2] == [f"{long}::c", f"{long}::d"]
    assert second[0] == f"{apart}::a"
    assert second[1] in short
    done = [0, 0]
    while work.has_pending:
        for number, node in enumerate(nodes):
            if done[number] < len(node.got):
                work.mark_test_complete(node, node.got[done[number]])
                done[number] += 1
    assert sorted(nodes[0].got + nodes[1].got) == list(range(len(tests)))
    assert all(node.shutting_down for node in nodes)
