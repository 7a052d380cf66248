"""`NamedTuple`, which replaces `typing.NamedTuple` because its classes are created faster.

`typing.NamedTuple` compiles a constructor and the annotation of each field, which takes a quarter
of a millisecond per class. A broker creates about sixty such classes before it accepts connections.
Here, annotations remain text, and a constructor is compiled only when its class has several
objects. From then on, objects are created as fast as with `typing.NamedTuple`.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self

__all__ = ["OBJECTS_WITHOUT_CONSTRUCTOR", "NamedTuple", "bound_arguments"]

OBJECTS_WITHOUT_CONSTRUCTOR: Final = 8
"""Number of objects of a class that are created before its constructor is compiled.

Compiling a constructor takes about as long as creating 50 objects without a compiled constructor.
Many classes have only one object in a process.
"""

_created: Final[dict[type, int]] = {}
"""Number of objects created so far, for each class whose constructor is not compiled yet."""

_getter: Final = getattr(collections, "_tuplegetter")  # noqa: B009 - unknown to type checkers
"""The descriptor class that `collections.namedtuple` uses for fields."""


class _Fields(tuple[Any, ...]):
    """Base of all NamedTuple classes, with the methods that `collections.namedtuple` generates."""

    __slots__ = ()

    if TYPE_CHECKING:  # at runtime, these annotations would be type hints of every subclass
        _fields: tuple[str, ...]
        _field_defaults: dict[str, object]

    def __new__(cls, /, *args: object, **kwargs: object) -> Any:
        """Create one of the first objects of a class without a compiled constructor.

        Later, or if the arguments are wrong, compile the constructor and call it. Concurrent
        first calls in several threads are harmless.
        """
        owner: Any = next(base for base in cls.__mro__ if "_fields" in base.__dict__)
        created = _created[owner] = _created.get(owner, 0) + 1
        if created <= OBJECTS_WITHOUT_CONSTRUCTOR:
            values = bound_arguments(owner._fields, owner._field_defaults, args, kwargs)
            if values is not None:
                return tuple.__new__(cls, [values[name] for name in owner._fields])
        _created.pop(owner, None)
        owner.__new__ = constructor = _constructor(owner)
        return constructor(cls, *args, **kwargs)

    @classmethod
    def _make(cls, iterable: Iterable[object]) -> Self:
        """Return an object with the given values, one per field.

        Raises:
            TypeError: there are more or fewer values than fields.
        """
        made = tuple.__new__(cls, iterable)
        if len(made) != len(cls._fields):
            raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
        return made

    def _replace(self, /, **changes: object) -> Self:
        """Return a copy with changed fields.

        Raises:
            ValueError: a name in `changes` is not a field.
        """
        changed = self._make(map(changes.pop, self._fields, self))
        if changes:
            raise ValueError(f"Got unexpected field names: {list(changes)!r}")
        return changed

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={self[at]!r}" for at, name in enumerate(self._fields))
        return f"{type(self).__name__}({values})"

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)


def bound_arguments(
    fields: Sequence[str],
    defaults: Mapping[str, object],
    arguments: Sequence[object],
    keywords: Mapping[str, object],
) -> dict[str, object] | None:
    """Return the value of each field by name; None if a constructor would refuse the arguments."""
    values = {**defaults, **keywords}
    for name, value in zip(fields, arguments, strict=False):
        if name in keywords:
            return None
        values[name] = value
    if len(arguments) > len(fields) or len(values) > len(fields):
        return None
    return values if all(name in values for name in fields) else None


def _constructor(cls: type[_Fields]) -> Any:
    """Return `__new__` of a class, with its fields as parameters."""
    names = "".join(f"{name}, " for name in cls._fields)
    made: Any = eval(
        f"lambda _cls, {names}: _new(_cls, ({names}))", {"_new": tuple.__new__, "__builtins__": {}}
    )
    made.__name__ = "__new__"
    made.__qualname__ = f"{cls.__qualname__}.__new__"
    made.__module__ = cls.__module__
    made.__defaults__ = tuple(cls._field_defaults.values())
    return staticmethod(made)


class _Creation(type):
    """Metaclass of `_base` only; the classes that it creates have the metaclass `type`."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        """Return a subclass of tuple whose fields are the annotations in the namespace."""
        fields = tuple(namespace["__annotations__"])
        namespace.update(
            __slots__=(),
            __match_args__=fields,
            _fields=fields,
            _field_defaults={field: namespace[field] for field in fields if field in namespace},
        )
        for at, field in enumerate(fields):
            namespace[field] = _getter(at, f"Alias for field number {at}")
        return type(name, tuple(_Fields if base is _base else base for base in bases), namespace)


_base: Final[Any] = type.__new__(_Creation, "NamedTuple", (), {})

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    NamedTuple = _base
