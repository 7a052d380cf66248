"""A setting: name, type, range, default and meaning.

The broker's start path must not import pydantic, so this module does not use it.
"""

from __future__ import annotations

import copy
import math
import re
from typing import Any, Final, TypeAlias, TypeVar

from aiokq.core.errors import ConfigError
from aiokq.core.limits import INT16_MAX
from aiokq.core.named_tuple import NamedTuple

__all__ = [
    "INT_MAX",
    "LONG_MAX",
    "PASSWORD",
    "Declared",
    "Setting",
    "SettingValue",
    "declared",
    "java_text",
    "shortened",
]

T = TypeVar("T")

SettingValue: TypeAlias = bool | int | float | str | None

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

PASSWORD: Final = "password"
"""The kind of settings whose values are secrets, which are shown nowhere."""

_INTEGER: Final = re.compile(r"[+-]?\d{1,1000}")
"""The syntax of integers, as in Java's `Integer.parseInt`, which does not allow underscores.

The number of digits is limited because `int` refuses text of more than 4300 digits with an error
that does not name the setting.
"""

_MOST: Final = {"short": 2**15 - 1, "int": INT_MAX, "long": LONG_MAX}


def shortened(text: str) -> str:
    """Return `text` for a message, without the middle if it has more than 80 characters."""
    return text if len(text) <= 80 else f"{text[:40]}...{text[-30:]}"


def java_text(value: float) -> str:
    """Return a finite number as Java's `Double.toString` writes it, for example ``1.0E7``."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    digits = repr(abs(value)).partition("e")[0].replace(".", "").strip("0")
    mantissa, exponent = f"{value:.{max(len(digits), 2) - 1}e}".split("e")
    return f"{mantissa}E{int(exponent)}"


class Setting:
    """A setting by Kafka's name (`num.partitions`). Immutable by convention.

    Attributes:
        kind: Kafka's type: `boolean`, `short`, `int`, `long`, `double`, `string`, `list` or
            `password`.
        has_effect: whether the broker uses the setting. If false, the broker only checks the value.
        any_case: whether the case of the value is ignored.
        is_path: whether the value is a path, whose bytes need not be UTF-8.
    """

    # `Setting` is no dataclass, because compiling the methods of a dataclass would add half a
    # millisecond to the broker's start.
    __slots__ = (
        "any_case",
        "at_least",
        "at_most",
        "choices",
        "default",
        "doc",
        "field",
        "has_effect",
        "is_path",
        "kind",
        "name",
        "nullable",
    )

    def __init__(
        self,
        name: str,
        field: str,
        kind: str,
        default: SettingValue,
        doc: str,
        at_least: float | None = None,
        at_most: float | None = None,
        choices: tuple[str, ...] = (),
        nullable: bool = False,
        has_effect: bool = True,
        any_case: bool = False,
        is_path: bool = False,
    ) -> None:
        self.name = name
        self.field = field
        self.kind = kind
        self.default = default
        self.doc = doc
        self.at_least = at_least
        self.at_most = at_most
        self.choices = choices
        self.nullable = nullable
        self.has_effect = has_effect
        self.any_case = any_case
        self.is_path = is_path

    def renamed(self, name: str) -> Setting:
        """Return a copy of this setting with another name, for error messages."""
        setting = copy.copy(self)
        setting.name = name
        return setting

    def parse(self, value: object) -> SettingValue:
        """Convert text or a Python value to this setting's type and check its range.

        Raises:
            ConfigError: the value is of the wrong type, out of range or not in `choices`; is null,
                and the setting is not nullable; or is text that is not valid UTF-8, or is too long
                for the responses that contain it.
        """
        null = ("",) if self.kind == PASSWORD else ("", "null")
        if value is None or (self.nullable and value in null):
            if not self.nullable:
                raise ConfigError(f"{self.name} must not be null")
            return None
        parsed = self._typed(value)
        if isinstance(parsed, str):
            parsed = parsed.lower() if self.any_case else parsed
            self._check_choices(parsed)
            if self.kind == PASSWORD:
                self._check_secret(parsed)
            elif self.has_effect and not self.is_path:  # responses contain the value
                self._check_text(parsed)
        elif not isinstance(parsed, bool):
            self._check_range(parsed)
        return parsed

    def _typed(self, value: object) -> bool | int | float | str:
        text = value.strip() if isinstance(value, str) else value
        if self.kind == "boolean":
            if isinstance(text, bool):
                return text
            if isinstance(text, str) and text.lower() in ("true", "false"):
                return text.lower() == "true"
        elif self.kind in ("short", "int", "long"):
            if isinstance(text, int) and not isinstance(text, bool):
                return text
            if isinstance(text, str) and _INTEGER.fullmatch(text):
                return int(text)
        elif self.kind == "double":
            if isinstance(text, str) and "_" in text:
                pass  # `float` accepts underscores, Java does not
            elif isinstance(text, int | float | str) and not isinstance(text, bool):
                try:
                    return float(text)
                except (ValueError, OverflowError):
                    pass
        elif isinstance(text, str):
            return text
        elif self.kind == "list" and isinstance(text, list | tuple):
            return ",".join(str(item) for item in text)
        if self.kind == PASSWORD:
            raise ConfigError(f"{self.name} must be a str")
        raise ConfigError(f"{self.name} must be of type {self.kind}, not {_shown(value)}")

    def _check_range(self, value: int | float) -> None:
        ceiling = self.at_most
        if ceiling is None and self.kind != "double":
            ceiling = _MOST[self.kind]
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{self.name} must be a finite number, not {value}")
        if self.at_least is not None and value < self.at_least:
            raise ConfigError(f"{self.name} must be at least {self.at_least}, not {_shown(value)}")
        if ceiling is not None and value > ceiling:
            raise ConfigError(f"{self.name} must be at most {ceiling}, not {_shown(value)}")

    def _check_choices(self, value: str) -> None:
        if self.kind == "list" and not value.strip():
            return  # an empty list
        parts = [part.strip() for part in value.split(",")] if self.kind == "list" else [value]
        for part in parts:
            if self.choices and part not in self.choices:
                raise ConfigError(
                    f"{self.name} must be one of {', '.join(self.choices)}, "
                    f"not {shortened(repr(part))}"
                )

    def _check_secret(self, value: str) -> None:
        try:
            value.encode()
        except UnicodeEncodeError:
            # The error of `encode` contains the secret. The new error is raised outside this block,
            # so that the error of `encode` is neither its cause nor its context.
            pass
        else:
            return
        raise ConfigError(f"{self.name} is not valid UTF-8")

    def _check_text(self, value: str) -> None:
        try:
            size = len(value.encode())
        except UnicodeEncodeError:
            raise ConfigError(
                f"{self.name}: {shortened(repr(value))} is not valid UTF-8, so no response can "
                "hold it"
            ) from None
        if size > INT16_MAX:
            raise ConfigError(
                f"{self.name} has {size:,} bytes, of which a response can hold {INT16_MAX:,}"
            )


class Declared(NamedTuple):
    """The declaration of a setting: its default, and the other arguments of its `Setting`."""

    default: Any
    row: tuple[Any, ...]


def declared(
    default: T,
    doc: str,
    *,
    kind: str = "",
    at_least: float | None = None,
    at_most: float | None = None,
    choices: tuple[str, ...] = (),
    nullable: bool = False,
    has_effect: bool = True,
    any_case: bool = False,
    is_path: bool = False,
) -> T:
    """Declare a setting as a field of a class.

    `settings.SETTINGS` has a `Setting` for each declaration; the default replaces the declaration.
    """
    if not kind:
        kind = {bool: "boolean", int: "int", float: "double"}.get(type(default), "string")
    row = (kind, doc, at_least, at_most, choices, nullable, has_effect, any_case, is_path)
    declaration: Any = Declared(default, row)
    return declaration  # type: ignore[no-any-return]  # replaced by the default


def _shown(value: object) -> str:
    if isinstance(value, int) and abs(value) > 10**40:
        return "a number of more than 40 digits"  # `repr` refuses more than 4300 digits
    return shortened(repr(value))
