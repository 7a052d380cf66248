"""Client settings as frozen values without pydantic, and the tables that check them.

Constructor keywords are checked here, because importing pydantic would delay the start by 100 ms.
The tables accept values of the setting's own type, an int for a float, and a str for a list. A row
may have functions that convert further values; the settings model calls the same functions. All
other values are passed to the model, which converts or refuses them. `tools/generate_settings.py`
generates the tables from the models.
Tests: tests/property/core/test_settings_parity.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, NoReturn, Self, TypeAlias, TypeVar, final

from aiokq.core.limits import INT16_MAX
from aiokq.core.setting_rules import Rules, split_list

if TYPE_CHECKING:
    from aiokq.core.settings import Settings

__all__ = ["Row", "Values"]

Hook: TypeAlias = Callable[[object], object]
"""A function that converts a value, or raises ValueError if the value is invalid."""

M = TypeVar("M", bound="Settings")


class _NotTaken(ValueError):
    """The table does not accept a name or a value; the settings model must check it."""


@final
class Row:
    """One setting of the table.

    Args:
        kind: the function that checks and converts a value, such as `integer` below. It raises
            ValueError for a value that the table does not accept.
        default: the default in the settings model.
        optional: whether None is allowed.
        at_least, at_most: bounds of a number, inclusive.
        choices: the allowed values.
        types: classes of which the value, or each of its items, is an instance.
        takes_callables: whether callables are allowed too.
        splits: whether a str is a comma-separated list.
        hidden: whether `repr` omits the value.
        before, after: functions of the model that convert the value before and after `kind`.
    """

    __slots__ = (
        "after",
        "at_least",
        "at_most",
        "before",
        "choices",
        "default",
        "hidden",
        "kind",
        "optional",
        "splits",
        "takes_callables",
        "types",
    )

    def __init__(
        self,
        kind: Callable[[Row, object], object],
        default: object,
        *,
        optional: bool = False,
        at_least: float | None = None,
        at_most: float | None = None,
        choices: tuple[object, ...] = (),
        types: tuple[type, ...] = (),
        takes_callables: bool = False,
        splits: bool = False,
        hidden: bool = False,
        before: Callable[..., object] | None = None,
        after: Callable[..., object] | None = None,
    ) -> None:
        self.kind = kind
        self.default = default
        self.optional = optional
        self.at_least = at_least
        self.at_most = at_most
        self.choices = choices
        self.types = types
        self.takes_callables = takes_callables
        self.splits = splits
        self.hidden = hidden
        self.before = before
        self.after = after

    def take(self, value: object) -> object:
        """Return the value as the model would store it.

        Raises:
            ValueError: the table does not accept the value; the model may still accept it.
        """
        if self.splits and isinstance(value, str):
            value = split_list(value)
        if self.before is not None:
            value = self.before(value)
        if value is not None or not self.optional:
            value = self.kind(self, value)
        return value if self.after is None else self.after(value)

    def check_bounds(self, number: float) -> None:
        """Raise ValueError for a number that is out of bounds."""
        if self.at_least is not None and not number >= self.at_least:
            raise _NotTaken
        if self.at_most is not None and not number <= self.at_most:
            raise _NotTaken


# Most of these kinds accept exact types only: a value of a subclass, such as an enum, is passed to
# the settings model. `instance` and `instances` accept instances of `row.types`, and of subclasses.


def boolean(row: Row, value: object) -> bool:
    if type(value) is not bool:
        raise _NotTaken
    return value


def integer(row: Row, value: object) -> int:
    if type(value) is not int:
        raise _NotTaken
    row.check_bounds(value)
    return value


def real(row: Row, value: object) -> float:
    if type(value) is int and -(2**53) <= value <= 2**53:
        value = float(value)
    if type(value) is not float or not math.isfinite(value):
        raise _NotTaken
    row.check_bounds(value)
    return value


def text(row: Row, value: object) -> str:
    if type(value) is not str or len(value.encode()) > INT16_MAX:
        raise _NotTaken
    return value  # encode() raises UnicodeEncodeError, a ValueError, for a lone surrogate


def secret(row: Row, value: object) -> str:
    return text(row, value)


def choice(row: Row, value: object) -> object:
    if type(value) not in (str, int) or value not in row.choices:
        raise _NotTaken
    return value


def choice_by_name(row: Row, value: object) -> dict[str, object]:
    if type(value) is not dict:
        raise _NotTaken
    return {text(row, name): choice(row, each) for name, each in value.items()}


def text_or_texts(row: Row, value: object) -> object:
    if type(value) is str:
        return text(row, value)
    if type(value) not in (list, tuple):
        raise _NotTaken
    assert isinstance(value, list | tuple)
    return type(value)(text(row, each) for each in value)


def instance(row: Row, value: object) -> object:
    if (row.takes_callables and callable(value)) or isinstance(value, row.types):
        return value
    raise _NotTaken


def instances(row: Row, value: object) -> tuple[object, ...]:
    if type(value) not in (list, tuple):
        raise _NotTaken
    assert isinstance(value, list | tuple)
    return tuple(
        text(row, each) if type(each) is str and str in row.types else _instance(row, each)
        for each in value
    )


def _instance(row: Row, value: object) -> object:
    if isinstance(value, str) or not isinstance(value, row.types):
        raise _NotTaken
    return value


class Values(Rules):
    """Base of the frozen settings of a client; `tools/generate_settings.py` generates subclasses.

    The attributes are those of the settings model. A secret is a plain str that `repr` does not
    show.

    Attributes:
        TABLE: the settings by name.
    """

    TABLE: ClassVar[Mapping[str, Row]] = {}
    _DEFAULTS: ClassVar[Mapping[str, object]] = {}
    _SECRETS: ClassVar[frozenset[str]] = frozenset()

    _explicit: frozenset[str]
    _of_cluster: frozenset[str]
    _settings: Settings | None

    def __init_subclass__(cls) -> None:
        cls._DEFAULTS = {name: row.default for name, row in cls.TABLE.items()}
        cls._SECRETS = frozenset(name for name, row in cls.TABLE.items() if row.kind is secret)

    @staticmethod
    def model() -> type[Settings]:
        """Return the settings model; imports pydantic."""
        raise NotImplementedError

    @classmethod
    def given(
        cls, settings: Mapping[str, object], of_cluster: frozenset[str] = frozenset()
    ) -> Self:
        """Return the values of all settings; `settings` has the settings that were given.

        Args:
            of_cluster: names of the settings that were given to the Cluster that this client
                shares.

        Raises:
            ConfigError: a name is unknown, a value is invalid, or two settings contradict each
                other.
        """
        try:
            return cls._taken(settings, of_cluster)
        except ValueError:
            pass  # the error that the model raises below must not have this error as its context
        return cls.of(cls.model()(**settings, _of_cluster=of_cluster))

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the values of an instance of the settings model or of a subclass."""
        values = {name: getattr(settings, name) for name in cls.TABLE}
        for name in cls._SECRETS:
            if values[name] is not None:
                values[name] = values[name].get_secret_value()
        return cls._made(values, settings.explicit, settings.of_cluster, settings)

    @classmethod
    def _taken(cls, settings: Mapping[str, object], of_cluster: frozenset[str]) -> Self:
        """Return the values if the table accepts all of them.

        Raises:
            ValueError: a name is unknown, the table does not accept a value, or two settings
                contradict each other.
        """
        values = dict(cls._DEFAULTS)
        for name, value in settings.items():
            row = cls.TABLE.get(name)
            if row is None:
                raise _NotTaken
            values[name] = row.take(value)
        made = cls._made(values, frozenset(settings), of_cluster, None)
        made._check_together()
        return made

    @classmethod
    def _made(
        cls,
        values: dict[str, object],
        explicit: frozenset[str],
        of_cluster: frozenset[str],
        settings: Settings | None,
    ) -> Self:
        made = object.__new__(cls)
        made.__dict__.update(values, _explicit=explicit, _of_cluster=of_cluster, _settings=settings)
        return made

    @property
    def explicit(self) -> frozenset[str]:
        """The names of the settings that were given; other values are defaults or derived."""
        return self._explicit

    @property
    def of_cluster(self) -> frozenset[str]:
        """The names of the settings that were given to the Cluster that this client shares."""
        return self._of_cluster

    def explicit_values(self) -> dict[str, object]:
        """Return the settings that were given, by name."""
        return {name: getattr(self, name) for name in self.TABLE if name in self._explicit}

    def _as(self, model: type[M]) -> M:
        """Return these values as an instance of the settings model; create one if there is none."""
        if not isinstance(self._settings, model):
            from pydantic import SecretStr

            # The values are not validated again: they are valid, and their warnings have been
            # logged.
            values = {name: getattr(self, name) for name in self.TABLE}
            for name in self._SECRETS:
                if values[name] is not None:
                    values[name] = SecretStr(values[name])
            made = model.model_construct(set(self._explicit), **values)
            made._of_cluster = self._of_cluster
            self._settle("_settings", made)
        assert isinstance(self._settings, model)
        return self._settings

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"settings are frozen: {name} cannot be set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"settings are frozen: {name} cannot be deleted")

    def __repr__(self) -> str:
        shown = (
            f"{name}={value!r}"
            for name, value in self.explicit_values().items()
            if name not in self._SECRETS and not self.TABLE[name].hidden
        )
        return f"{type(self).__name__}({', '.join(shown)})"
