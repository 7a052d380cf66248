"""`GivenOptions`: reads the options in a file of Bruce or Dory and on Bruce's command line.

Tests: tests/unit/gateway/test_import_xml.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from aiokq.gateway.bruce_flags import SWITCHES
from aiokq.gateway.xml_values import (
    FLAGS,
    INT32_MAX,
    INVERTED,
    OPTIONS,
    SWITCHED,
    Given,
    flag_error,
    mode_of,
    number_of,
)

if TYPE_CHECKING:
    from aiokq.gateway.xml_document import Element

__all__ = ["GivenOptions", "boolean_of", "file_of"]

FILE_SECTIONS: Final = {"batching", "compression", "topicRateLimiting", "initialBrokers"}
"""The sections that files of Bruce and Dory have in common."""


class GivenOptions:
    """The options that were given.

    Raises:
        ConfigError: a section, an element or a flag is wrong.

    Attributes:
        name: Bruce or Dory.
        flags: the command line of Bruce.
        sections: the sections of the file, by name.
        given: texts of options, by section and name.
        enabled: whether a section with an attribute `enable` is enabled.
        log_file: the file to which Bruce or Dory would log; None if there is none.
    """

    def __init__(self, root: Element, dory: bool, flags: Mapping[str, str]) -> None:
        known = FILE_SECTIONS | (OPTIONS.keys() | {"inputSources"} if dory else set())
        self.name = "Dory" if dory else "Bruce"
        self.flags = flags
        self.sections = root.sections(known)
        self.given: dict[str, Given] = {}
        self.enabled: dict[str, bool] = {}
        self.log_file: str | None = None
        self._collect_flags()
        self._collect_options()

    def _collect_flags(self) -> None:
        for flag, text in self.flags.items():
            error = flag_error(flag)
            if flag in FLAGS:
                key, unit = FLAGS[flag]
                value = str(flag not in INVERTED).lower() if flag in SWITCHES else text
                self.given[key] = Given(value, error, unit)
                section = key.split("/")[0]
                if section in SWITCHED:
                    self.enabled[section] = self.enabled.get(section, False) or flag.endswith(
                        ("path", "dir")
                    )
            elif flag == "use_old_input_format":
                raise error("programs must write the format of Bruce 1.0, not the older one")

    def _collect_options(self) -> None:
        for section, element in self.sections.items():
            if section not in OPTIONS:
                continue
            known = set(OPTIONS[section]) | ({"file"} if section == "logging" else set())
            for name, child in element.sections(known).items():
                if name == "file":
                    self.log_file = file_of(child)[0]
                    continue
                text = child.leaf().text(OPTIONS[section][name])
                self.given[f"{section}/{name}"] = Given(text, child.error, suffixes=True)
            if section in SWITCHED:
                enabled = boolean_of(Given(element.text("enable"), element.error))
                self.enabled[section] = enabled
                if "path" not in element.sections(known):
                    raise element.error("the element <path> is missing")

    def number(
        self, key: str, default: int, *, least: int = 0, most: int = INT32_MAX
    ) -> tuple[int, str]:
        """Return the value of an option, and a note if it is the default of Bruce or Dory."""
        given = self.given.get(key)
        if given is None:
            return default, f"default of {self.name}"
        return number_of(given, least=least, most=most), ""

    def boolean(self, key: str, default: bool) -> bool:
        given = self.given.get(key)
        return default if given is None else boolean_of(given)


def file_of(element: Element) -> tuple[str | None, str | None]:
    """Return the path and mode in an element; path is None if it is empty or `enable` is false."""
    inside = element.sections(("path", "mode"))
    enabled = boolean_of(Given(element.text("enable"), element.error))
    if "path" not in inside:
        raise element.error("the element <path> is missing")
    path = inside["path"].leaf().text("value")
    mode = None
    if "mode" in inside:
        mode = mode_of(Given(inside["mode"].leaf().text("value"), inside["mode"].error))
    if not enabled or not path:
        return None, mode
    if not path.startswith("/"):
        raise inside["path"].error(f"the path {path!r} is not absolute")
    return path, mode


def boolean_of(given: Given) -> bool:
    """Return the value of a boolean option."""
    value = given.text.lower()
    if value not in ("true", "false"):
        raise given.error(f"{given.text!r} is neither true nor false")
    return value == "true"
