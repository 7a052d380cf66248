"""What the sample of a parametrized test has in it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.thinning import ONE_OF, SMALL, mark_cases_of_the_long_run, parameters_of, sample


def test_each_value_is_in_the_sample() -> None:
    """APIs in several versions, each with and without a denial."""
    cases: list[dict[str, Any]] = [
        {"key": key, "version": version, "denies": denies}
        for key in range(30)
        for version in range(key % 4 + 1)
        for denies in (False, True)
    ]
    chosen = sample(cases, len(cases) // 4, "a test")
    assert len(chosen) < len(cases) // 2
    for parameter in ("key", "version", "denies"):
        assert {cases[number][parameter] for number in chosen} == {
            case[parameter] for case in cases
        }
    assert sample(cases, len(cases) // 4, "a test") == chosen
    assert sample(cases, len(cases) // 4, "another") != chosen


def test_of_seeds_there_are_as_many_as_asked_for() -> None:
    assert len(sample([{"seed": seed} for seed in range(500)], 100, "a test")) == 100


def test_more_cases_than_asked_for_are_chosen_if_the_values_need_them() -> None:
    cases: list[dict[str, Any]] = [{"a": n, "b": None} for n in range(8)]
    cases += [{"a": None, "b": n} for n in range(8)]
    assert len(sample(cases, 9, "a test")) == 16


def test_parts_of_a_tuple_are_parameters() -> None:
    def case(**params: object) -> Any:
        return SimpleNamespace(callspec=SimpleNamespace(params=params))

    assert parameters_of(case(key_version=(3, 12), denies=True)) == {
        "key_version.0": 3,
        "key_version.1": 12,
        "denies.0": True,
    }
    assert parameters_of(case(names=["a"])) == {"names.0": "['a']"}


def test_all_cases_are_in_the_long_run_and_few_cases_are_all_in_the_sample() -> None:
    class Item:
        def __init__(self, seed: int) -> None:
            self.callspec = SimpleNamespace(params={"seed": seed})
            self.marks: list[str] = []

        def add_marker(self, mark: Any) -> None:
            self.marks.append(mark.name)

    def marked(count: int) -> int:
        name = next(iter(ONE_OF))
        items = [Item(seed) for seed in range(count)]
        named: list[tuple[str, Any]] = [
            (f"{name}::test[{n}]", item) for n, item in enumerate(items)
        ]
        mark_cases_of_the_long_run(named)
        return sum(item.marks == ["torture"] for item in items)

    assert marked(SMALL) == 0
    step = next(iter(ONE_OF.values()))
    assert marked(100 * step) == 100 * step - 100
