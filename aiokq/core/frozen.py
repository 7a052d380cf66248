"""`frozen`, the decorator of value classes: frozen dataclasses with slots, compiled when needed.

`dataclass(frozen=True, slots=True)` compiles eight functions per class, which takes half a
millisecond. The client has about a hundred such classes. A process creates objects of a few of
them, and compares or prints even fewer. Therefore `__init__` is compiled when a class has several
objects, and the other functions when one of them is called.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar, dataclass_transform

from aiokq.core.named_tuple import OBJECTS_WITHOUT_CONSTRUCTOR, bound_arguments

__all__ = ["frozen"]

T = TypeVar("T")

_COMPILED: Final = ("__init__", "__repr__", "__eq__", "__hash__")
"""Methods that a class may not define itself."""

_created: Final[dict[type, int]] = {}
"""Number of objects created so far, for each class whose `__init__` is not compiled yet."""


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def frozen(cls: type[T]) -> type[T]:
    """Do what ``dataclass(frozen=True, slots=True)`` does, but compile methods only when needed.

    Fields are the annotations of the class and of its `frozen` bases. `dataclasses.field`,
    ``__post_init__`` and the functions of `dataclasses` work.

    Raises:
        TypeError: the class defines ``__init__``, ``__repr__``, ``__eq__`` or ``__hash__``.
    """
    namespace = dict(cls.__dict__)
    if mine := [name for name in _COMPILED if name in namespace]:
        raise TypeError(f"{cls.__name__} has {mine[0]} of its own: use dataclass()")
    own = {
        name: namespace.pop(name, dataclasses.MISSING)
        for name, annotation in namespace.get("__annotations__", {}).items()
        if not annotation.startswith("ClassVar")
    }
    del namespace["__dict__"], namespace["__weakref__"]
    namespace.update(
        __slots__=tuple(own),
        __frozen_fields__=own,
        __match_args__=tuple({**_defaults(cls), **own}),
        __dataclass_fields__=_Fields(),
        __init__=_first_init,
        __signature__=_Signature(),
        __repr__=_first_repr,
        __eq__=_first_eq,
        __hash__=_first_hash,
        __setattr__=_refuse_to_set,
        __delattr__=_refuse_to_delete,
        __getstate__=_get_state,
        __setstate__=_set_state,
    )
    metaclass: Any = type(cls)  # such as ABCMeta
    made = metaclass(cls.__name__, cls.__bases__, namespace)
    made.__qualname__ = cls.__qualname__
    result: type[T] = made
    return result


class _Fields:
    """Descriptor for `__dataclass_fields__` of a class whose methods are not compiled yet."""

    def __get__(self, instance: object, owner: Any) -> object:
        for cls in owner.__mro__:
            if cls.__dict__.get("__dataclass_fields__") is self:
                _complete(cls)
        return owner.__dataclass_fields__


class _Signature:
    """Descriptor for `__signature__`, which `inspect` and `help()` read."""

    def __get__(self, instance: object, owner: Any) -> inspect.Signature:
        if owner.__init__ is not _first_init:
            raise AttributeError("__signature__")  # `inspect` then reads the compiled __init__
        cls = next(base for base in owner.__mro__ if "__frozen_fields__" in base.__dict__)
        return inspect.signature(_pattern(cls, repr=False, eq=False))


def _first_init(self: object, *args: object, **kwargs: object) -> None:
    cls = _frozen_class(self)
    created = _created[cls] = _created.get(cls, 0) + 1
    if created <= OBJECTS_WITHOUT_CONSTRUCTOR and _assign(self, cls, args, kwargs):
        return
    _created.pop(cls, None)
    pattern = _pattern(cls, repr=False, eq=False)
    pattern.__init__.__qualname__ = f"{cls.__qualname__}.__init__"
    for name in ("__match_args__", "__init__"):
        setattr(cls, name, pattern.__dict__[name])
    cls.__init__(self, *args, **kwargs)


def _assign(self: Any, cls: Any, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    """Set the fields as `__init__` does; return False if `__init__` must be compiled instead.

    Returns False, and sets nothing, if `__init__` would refuse the arguments or a field is
    keyword-only.
    """
    defaults: dict[str, object] = {}
    factories: dict[str, Callable[[], object]] = {}
    for name, default in _defaults(cls).items():
        if isinstance(default, dataclasses.Field):
            if default.kw_only is True:
                return False
            if default.default_factory is not dataclasses.MISSING:
                factories[name] = default.default_factory
            default = default.default
        if default is not dataclasses.MISSING or name in factories:
            defaults[name] = default
    values = bound_arguments(cls.__match_args__, defaults, args, kwargs)
    if values is None:
        return False
    for name in cls.__match_args__:
        value = values[name]
        if value is dataclasses.MISSING:
            value = factories[name]()
        object.__setattr__(self, name, value)
    if hasattr(cls, "__post_init__"):
        self.__post_init__()
    return True


def _first_repr(self: object) -> str:
    _complete(_frozen_class(self))
    return repr(self)


def _first_eq(self: object, other: object) -> bool:
    cls = _frozen_class(self)
    _complete(cls)
    equal: bool = cls.__eq__(self, other)
    return equal


def _first_hash(self: object) -> int:
    _complete(_frozen_class(self))
    return hash(self)


def _frozen_class(value: object) -> Any:
    return next(cls for cls in type(value).__mro__ if "__frozen_fields__" in cls.__dict__)


def _complete(cls: Any) -> None:
    """Compile all methods except `__init__`. Concurrent calls in several threads are harmless."""
    pattern = _pattern(cls)
    for name in ("__match_args__", "__dataclass_params__", "__repr__", "__eq__", "__hash__"):
        setattr(cls, name, pattern.__dict__[name])
    # Set this attribute last, because other threads then consider the class complete.
    cls.__dataclass_fields__ = pattern.__dict__["__dataclass_fields__"]


def _pattern(cls: Any, **options: bool) -> Any:
    """Return a new dataclass with the fields of `cls`; the caller copies methods of it to `cls`."""
    annotations: dict[str, object] = {}
    # For a class without a docstring, `dataclass` would compute the signature, which takes time.
    namespace: dict[str, Any] = {
        "__module__": cls.__module__,
        "__doc__": cls.__doc__ or cls.__name__,
        "__annotations__": annotations,
    }
    for base in reversed(cls.__mro__):
        for name in base.__dict__.get("__frozen_fields__", ()):
            annotations[name] = base.__annotations__[name]
    for name, default in _defaults(cls).items():
        if default is not dataclasses.MISSING:
            # A Field can belong to only one dataclass; `default` may belong to a base class.
            namespace[name] = (
                copy.copy(default) if isinstance(default, dataclasses.Field) else default
            )
    if hasattr(cls, "__post_init__"):
        namespace["__post_init__"] = cls.__post_init__
    plain: Any = type(cls.__name__, (), namespace)
    return dataclasses.dataclass(frozen=True, **options)(plain)


def _defaults(cls: Any) -> dict[str, object]:
    """Return the fields of a class and its bases, each with its default, its Field, or MISSING."""
    defaults: dict[str, object] = {}
    for base in reversed(cls.__mro__):
        defaults.update(base.__dict__.get("__frozen_fields__", {}))
    return defaults


def _refuse_to_set(self: object, name: str, value: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _get_state(self: Any) -> list[object]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[object]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
