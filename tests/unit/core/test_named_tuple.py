"""`NamedTuple`: the classes behave as those of `typing.NamedTuple` do."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
import typing
from pathlib import Path
from threading import Barrier, Thread
from typing import Generic, TypeVar

import pytest

import aiokq
from aiokq.core.named_tuple import OBJECTS_WITHOUT_CONSTRUCTOR, NamedTuple

T = TypeVar("T")


class Span(NamedTuple):
    """A sample class."""

    start: int
    end: int
    tags: tuple[str, ...] = ()

    @property
    def length(self) -> int:
        return self.end - self.start

    @classmethod
    def of(cls, text: str) -> Span:
        start, end = text.split("-")
        return cls(int(start), int(end))


class Single(NamedTuple):
    value: object


class Named(Span):
    __slots__ = ()

    def __new__(cls, start: int) -> Named:
        return super().__new__(cls, start, start + 1)


class Box(NamedTuple, Generic[T]):
    item: T


class Usual(typing.NamedTuple):
    start: int
    end: int
    tags: tuple[str, ...] = ()


def fresh() -> type[Span]:
    class Fresh(NamedTuple):
        start: int
        end: int
        tags: tuple[str, ...] = ()

    return Fresh  # type: ignore[return-value]


def test_objects_are_tuples_with_named_fields():
    """Fields can be read by name, by position and by unpacking."""
    span = Span(1, end=5)
    start, end, tags = span
    assert (start, end, tags) == (span.start, span.end, span.tags) == (span[0], span[1], span[2])
    assert span == (1, 5, ())
    assert hash(span) == hash((1, 5, ()))
    assert span < Span(1, 6)
    assert (span.length, Span.of("2-3")) == (4, Span(2, 3))
    assert repr(span) == "Span(start=1, end=5, tags=())"
    assert repr(Single(())) == "Single(value=())"
    assert not hasattr(span, "__dict__")
    with pytest.raises(AttributeError):
        span.start = 2  # type: ignore[misc]
    match span:
        case Span(first, last):
            assert (first, last) == (1, 5)


def test_the_class_has_what_typing_gives_it():
    """Only the annotations differ: they are text, as in every other class."""
    for name in ("_fields", "_field_defaults", "__match_args__", "__slots__"):
        assert getattr(Span, name) == getattr(Usual, name)
    assert type(Span) is type(Usual) is type
    assert typing.get_type_hints(Span) == typing.get_type_hints(Usual)
    for _ in range(OBJECTS_WITHOUT_CONSTRUCTOR + 1):
        Span(1, 2)
    new = inspect.signature(Span)
    assert list(new.parameters) == list(inspect.signature(Usual).parameters)
    assert new.parameters["tags"].default == ()
    assert Span.start.__doc__ == Usual.start.__doc__


def test_wrong_arguments_are_refused_as_by_typing():
    """Also by the first call, before a constructor exists."""
    for arguments, named in (
        ((), {}),
        ((1, 2, (), 4), {}),
        ((1, 2), {"x": 1}),
        ((1,), {"start": 1}),
        ((1,), {"x": 1}),
        ((1,), {"tags": ("a",)}),
    ):
        messages = []
        for cls in (Usual, fresh(), Span):
            with pytest.raises(TypeError) as caught:
                cls(*arguments, **named)  # type: ignore[arg-type]
            messages.append(str(caught.value).rpartition("__new__")[2])
        assert messages == messages[:1] * 3


def test_changed_copies():
    """`_replace`, `_make` and `_asdict` check what they get."""
    assert Span(1, 2)._replace(end=3) == Span(1, 3)
    assert type(Named(1)._replace(end=9)) is Named
    assert Span._make([1, 2, ("a",)]) == Span(1, 2, ("a",))
    assert Span(1, 2)._asdict() == {"start": 1, "end": 2, "tags": ()}
    with pytest.raises(ValueError, match="Got unexpected field names: \\['size'\\]"):
        Span(1, 2)._replace(size=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="Expected 3 arguments, got 2"):
        Span._make([1, 2])


def test_a_copy_and_a_pickle_are_equal():
    """Results of tasks are pickled."""
    for value in (Span(1, 2, ("a",)), Single([1]), Box(4)):
        for same in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
            assert same == value
            assert type(same) is type(value)


def test_subclasses_and_generics_work():
    """A subclass uses the constructor of the class that has the fields."""
    assert Named(1) == (1, 2, ())
    assert isinstance(Named(1), Span)
    base = fresh()
    sub = type("Sub", (base,), {})
    assert sub(1, 2) == base(1, 2) == (1, 2, ())
    assert (type(sub(1, 2)), type(base(1, 2))) == (sub, base)
    assert Box[int](5).item == 5


def test_the_constructor_is_compiled_when_a_class_has_several_objects():
    """Most of sixty classes had one object, and their constructors took 2 % of a broker's start."""
    cls = fresh()
    for number in range(OBJECTS_WITHOUT_CONSTRUCTOR):
        assert cls(number, end=2) == (number, 2, ())
        assert "__new__" not in vars(cls)
    assert cls(1, 2, tags=("a",)) == (1, 2, ("a",))
    made = cls.__new__
    assert "__new__" in vars(cls)
    assert cls(1, 2) == (1, 2, ())
    assert cls.__new__ is made


def test_several_threads_can_create_the_first_objects_at_once():
    """Compression threads and Spark workers create values."""
    for _ in range(20):
        cls = fresh()
        for _ in range(OBJECTS_WITHOUT_CONSTRUCTOR - 2):
            cls(1, 2)
        barrier = Barrier(4)
        made: list[object] = []

        def make(cls=cls, barrier=barrier, made=made) -> None:
            barrier.wait()
            made.append(cls(1, 2))

        threads = [Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == [(1, 2, ())] * 4


def test_the_package_uses_it_instead_of_typings():
    """A class of `typing.NamedTuple` delays the import of its module."""
    package = Path(aiokq.__file__).parent
    found = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if re.search(r"^from typing import .*\bNamedTuple\b", path.read_text(), re.MULTILINE)
    }
    # spark, testing and gateway import public modules, and no broker or client imports them.
    others = ("fastpath/", "spark/", "testing/", "gateway/")
    assert {path for path in found if not path.startswith(others)} == {
        "core/types.py"  # TopicPartition is public: tools may read its signature at any time
    }
