"""Collects and counts the error codes in responses, for the broker's metrics.

Responses are not changed.

Source: Kafka ``AbstractResponse.errorCounts``.
Tests: ``tests/unit/broker/test_response_errors.py``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from aiokq.core.codes import BY_CODE

if TYPE_CHECKING:
    from aiokq.core.counters import CounterBy
    from aiokq.wire.struct import Response, Struct

__all__ = ["count_errors", "count_errors_in_steps", "error_codes"]

_Collect: TypeAlias = Callable[[list[int], Iterable["Struct"]], None]

STRUCTS_PER_STEP: Final = 32
"""Number of structs after which `count_errors_in_steps` yields."""

CODES_PER_STEP: Final = 256
"""Number of error codes that `count_errors_in_steps` counts before it yields."""

SUFFIX: Final = "error_code"
"""The ending of the name of each field with an error code."""


def count_errors(counters: CounterBy, response: Response) -> None:
    """Count the error codes of a response by Kafka's names."""
    _count(counters, error_codes(response))


def count_errors_in_steps(counters: CounterBy, response: Response) -> Generator[None, None, None]:
    """Count the error codes of a long response; yield between steps to let other tasks run."""
    codes: list[int] = []
    for field in type(response).__fields__:
        value = getattr(response, field.name)
        if isinstance(field.of, type):
            collect = _collector(field.of)
            structs = value if field.kind == "array" else (value,)
            if collect is not None and value is not None:
                for start in range(0, len(structs), STRUCTS_PER_STEP):
                    collect(codes, structs[start : start + STRUCTS_PER_STEP])
                    yield
        elif field.kind == "i16" and field.name.endswith(SUFFIX) and value:
            codes.append(value)
    for start in range(0, len(codes), CODES_PER_STEP):
        if start:
            yield
        _count(counters, codes[start : start + CODES_PER_STEP])


def _count(counters: CounterBy, codes: Iterable[int]) -> None:
    for code in codes:
        row = BY_CODE.get(code)
        counters["UNKNOWN" if row is None else row.name] += 1


def error_codes(response: Response) -> list[int]:
    """Return the error codes in a response and in all structs that it contains, except 0."""
    codes: list[int] = []
    collect = _collector(type(response))
    if collect is not None:
        collect(codes, (response,))
    return codes


@functools.cache
def _collector(cls: type[Struct]) -> _Collect | None:
    """Return a function that appends the error codes of structs of a class to a list.

    Returns None if the class has no fields with an error code.
    """
    own = [
        attrgetter(field.name)
        for field in cls.__fields__
        if field.kind == "i16" and field.name.endswith(SUFFIX)
    ]
    nested: list[tuple[Callable[[Struct], object], bool, _Collect]] = []
    for field in cls.__fields__:
        if not isinstance(field.of, type):  # the field contains no structs
            continue
        collect = _collector(field.of)
        if collect is not None:
            nested.append((attrgetter(field.name), field.kind == "array", collect))
    if not own and not nested:
        return None

    # Hot path, once per response; measured by benchmarks/micro/groups.py and
    # benchmarks/raw_load.py.
    def collect_all(codes: list[int], structs: Iterable[Struct]) -> None:
        for code_of in own:
            codes += filter(None, map(code_of, structs))
        for value_of, is_array, collect in nested:
            for value in map(value_of, structs):
                if value is not None:
                    collect(codes, value if is_array else (value,))  # type: ignore[arg-type]

    return collect_all
