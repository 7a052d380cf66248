"""`frozen`: value classes whose methods are compiled when they are needed."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from abc import ABC, abstractmethod
from threading import Barrier, Thread
from typing import ClassVar, Generic, TypeVar

import pytest

from aiokq.core.frozen import frozen
from aiokq.core.named_tuple import OBJECTS_WITHOUT_CONSTRUCTOR

T = TypeVar("T")


@frozen
class Point:
    """A sample value class."""

    x: int
    y: int = 0
    tags: dict[str, int] = dataclasses.field(default_factory=dict)
    note: str = dataclasses.field(default="", compare=False)
    KINDS: ClassVar[int] = 7

    @property
    def sum(self) -> int:
        return self.x + self.y


@frozen
class Place(Point):
    name: str = "here"


@frozen
class Shape(ABC):
    @abstractmethod
    def area(self) -> float: ...


@frozen
class Square(Shape):
    side: float

    def __post_init__(self) -> None:
        if self.side < 0:
            raise ValueError("side")

    def area(self) -> float:
        return self.side**2


@frozen
class Box(Generic[T]):
    item: T


def test_nothing_is_compiled_for_a_few_objects():
    """Compiling a hundred classes at 0.5 ms each took a third of the import time."""

    @frozen
    class Fresh:
        x: int

    first = {name: vars(Fresh)[name] for name in ("__init__", "__repr__", "__eq__", "__hash__")}
    for number in range(OBJECTS_WITHOUT_CONSTRUCTOR):
        one = Fresh(number)
        assert one.x == number
        assert vars(Fresh)["__init__"] is first["__init__"]
    other = Fresh(number)
    assert vars(Fresh)["__init__"] is not first["__init__"]
    assert vars(Fresh)["__eq__"] is first["__eq__"]
    assert one == other
    assert all(vars(Fresh)[name] is not method for name, method in first.items())


def fresh_point() -> type[Point]:
    @frozen
    class Fresh:
        x: int
        y: int = 0
        tags: dict[str, int] = dataclasses.field(default_factory=dict)
        note: str = dataclasses.field(default="", compare=False)

    return Fresh  # type: ignore[return-value]


def test_objects_created_before_and_after_the_compilation_are_equal():
    """Defaults, factories and keywords, and the arguments that are refused."""
    for arguments, named in (
        ((1,), {}),
        ((1, 2, {"a": 1}, "n"), {}),
        ((), {"note": "n", "x": 1}),
        ((1,), {"tags": {"b": 2}}),
        ((), {}),
        ((1, 2, {}, "", 5), {}),
        ((1,), {"x": 1}),
        ((1,), {"z": 1}),
        ((), {"y": 1, "z": 1}),
    ):
        outcomes = []
        cls = fresh_point()
        for _ in range(OBJECTS_WITHOUT_CONSTRUCTOR + 2):
            try:
                made = cls(*arguments, **named)
            except TypeError as error:
                outcomes.append(str(error))
            else:
                outcomes.append((made.x, made.y, made.tags, made.note))
                made.tags["changed"] = 1  # a default would be shared
                made.tags.clear()
                made.tags.update(named.get("tags", arguments[2] if len(arguments) > 2 else {}))
        assert outcomes == outcomes[:1] * len(outcomes)


def test_fields_given_only_by_keyword():
    """`__init__` is compiled for them at once."""

    @frozen
    class Fresh:
        x: int = dataclasses.field(kw_only=True)
        y: int = 1

    made = Fresh(2, x=3)
    assert (made.x, made.y) == (3, 2)
    with pytest.raises(TypeError):
        Fresh(1, 2)  # type: ignore[misc]


def test_it_is_a_frozen_dataclass_with_slots():
    """The class behaves like one made with `dataclass(frozen=True, slots=True)`."""
    point = Point(1, tags={"a": 1}, note="n")
    assert repr(point) == "Point(x=1, y=0, tags={'a': 1}, note='n')"
    assert (point.x, point.y, point.sum, Point.KINDS) == (1, 0, 1, 7)
    assert point == Point(1, 0, {"a": 1}, "other note")
    assert point != Point(2)
    assert Point(1).tags is not Point(1).tags
    assert hash(Box(5)) == hash(Box(5))
    assert {Box(5): 1}[Box(5)] == 1
    for change in (lambda: setattr(point, "x", 2), lambda: setattr(point, "z", 2)):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change()
    with pytest.raises(dataclasses.FrozenInstanceError):
        del point.x
    assert not hasattr(point, "__dict__")
    with pytest.raises(TypeError, match=r"Point\.__init__\(\) missing"):
        Point()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword"):
        Point(1, z=2)  # type: ignore[call-arg]


def test_bases_and_generics_work():
    """For example events, which have an abstract base class."""
    place = Place(1, 2, name="there")
    assert repr(place).startswith("Place(x=1, y=2, tags={}, note='', name='there')")
    assert place != Point(1, 2)
    assert isinstance(place, Point)
    with pytest.raises(TypeError, match="abstract"):
        Shape()  # type: ignore[abstract]
    assert Square(3).area() == 9
    with pytest.raises(ValueError, match="side"):
        Square(-1)
    assert Box[int](5).item == 5
    match place:
        case Place(x, y):
            assert (x, y) == (1, 2)


def test_the_functions_of_the_dataclasses_module_accept_it():
    """Even before an object of the class exists."""

    @frozen
    class Fresh(Point):
        z: int = 3

    assert [field.name for field in dataclasses.fields(Fresh)] == ["x", "y", "tags", "note", "z"]
    assert dataclasses.is_dataclass(Fresh)
    assert dataclasses.asdict(Fresh(1)) == {"x": 1, "y": 0, "tags": {}, "note": "", "z": 3}
    assert dataclasses.replace(Fresh(1), z=4) == Fresh(1, z=4)


def test_a_copy_and_a_pickle_are_equal():
    """The class may have no object yet when a value is unpickled."""
    for value in (Point(1, 2, {"a": 1}), Place(1), Square(2)):
        assert copy.copy(value) == copy.deepcopy(value) == value
        assert pickle.loads(pickle.dumps(value)) == value

    state = [1, 2, {}, "", "there"]
    fresh = frozen(type("Fresh", (Place,), {"__annotations__": {}}))
    made = object.__new__(fresh)
    made.__setstate__(state)
    assert (made.x, made.name) == (1, "there")


def test_several_threads_can_create_the_first_objects_at_once():
    """Compression threads and Spark workers create values."""
    for _ in range(20):
        fresh = frozen(type("Fresh", (), {"__annotations__": {"x": "int"}, "__module__": __name__}))
        for _ in range(OBJECTS_WITHOUT_CONSTRUCTOR - 2):
            fresh(1)
        barrier = Barrier(4)
        made: list[object] = []

        def make(fresh=fresh, barrier=barrier, made=made) -> None:
            barrier.wait()
            made.append(fresh(1))

        threads = [Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == [fresh(1)] * 4


def test_a_class_with_methods_that_frozen_would_replace_is_refused():
    """They would be replaced silently."""
    with pytest.raises(TypeError, match=r"Mine has __eq__ of its own: use dataclass\(\)"):

        @frozen
        class Mine:
            x: int

            def __eq__(self, other: object) -> bool:
                return True


def test_objects_compare_by_value_at_each_step_of_the_compilation() -> None:
    """Of two threads that created the first objects, one got an object without value equality."""
    steps: list[str] = []

    class Recorded(type):
        def __setattr__(cls, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name != "__qualname__" and name not in steps:
                steps.append(name)
                one, other = cls.__new__(cls), cls.__new__(cls)
                for each in (one, other):
                    object.__setattr__(each, "x", 1)
                assert one == other
                assert hash(one) == hash(other)

    @frozen
    class Point(metaclass=Recorded):
        x: int

    for _ in range(OBJECTS_WITHOUT_CONSTRUCTOR + 1):
        assert Point(1) == Point(1)
    assert {"__init__", "__eq__", "__hash__"} <= set(steps)


def test_the_signature_names_the_fields_before_the_constructor_is_compiled() -> None:
    """`help(NewTopic)` showed `*args` and `**kwargs`, and tools that list arguments found none."""

    @frozen
    class Span:
        start: int
        end: int = 9

    class Named(Span):
        def __init__(self, name: str) -> None:
            super().__init__(len(name))

    expected = "(start: 'int', end: 'int' = 9) -> None"
    assert str(inspect.signature(Span)) == expected
    for n in range(OBJECTS_WITHOUT_CONSTRUCTOR + 1):
        assert Span(n).end == 9
    assert str(inspect.signature(Span)) == expected
    assert list(inspect.signature(Named).parameters) == ["name"]
