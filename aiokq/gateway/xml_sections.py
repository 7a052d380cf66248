"""The sections of a Bruce or Dory file that select named configs, by default and by topic.

Tests: tests/unit/gateway/test_import_xml.py.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from aiokq.gateway.toml_text import Table, Value
from aiokq.gateway.xml_values import INT32_MAX, Given, name_once, number_of, of_name

if TYPE_CHECKING:
    from aiokq.gateway.xml_document import Element

__all__ = ["Batching", "Compression", "Limits", "Rates"]


class Limits(NamedTuple):
    """The limits of a named batching configuration; None for a disabled limit."""

    time_ms: int | None
    messages: int | None
    bytes: int | None

    def table(self, *, complete: bool) -> Table:
        """Return the options; with `complete`, disabled limits have the largest value."""
        values = self._asdict()
        return {
            name: INT32_MAX if value is None else value
            for name, value in values.items()
            if complete or value is not None
        }


class Batching:
    """Reads the section `<batching>`.

    Attributes:
        default: options of [batching].
        topics: options of [topics.NAME.batching].
    """

    def __init__(self, section: Element | None) -> None:
        self.data_limit: int | None = None
        self.message_max_bytes: int | None = None
        self.combined: Limits | None = None
        self.default: Table = {"mode": "off"}
        self.topics: dict[str, Table] = {}
        self._named: dict[str, Limits] = {}
        if section is None:
            return
        inside = section.sections(
            (
                "namedConfigs",
                "produceRequestDataLimit",
                "messageMaxBytes",
                "combinedTopics",
                "defaultTopic",
                "topicConfigs",
            )
        )
        for config in inside["namedConfigs"].children if "namedConfigs" in inside else ():
            if config.name != "config":
                raise config.error("<namedConfigs> contains <config> only")
            name_once(config, self._named)
            self._named[config.text("name")] = _limits(config)
        for name in ("produceRequestDataLimit", "messageMaxBytes"):
            if name in inside:
                element = inside[name].leaf()
                given = Given(element.text("value"), element.error, suffixes=True)
                value = number_of(given, most=INT32_MAX)
                if name == "messageMaxBytes":
                    self.message_max_bytes = value
                else:
                    self.data_limit = value
        if "combinedTopics" in inside:
            element = inside["combinedTopics"].leaf()
            enabled = element.text("enable").lower()
            if enabled not in ("true", "false"):
                raise element.error(f"{enabled!r} is neither true nor false")
            if enabled == "true":
                self.combined = of_name(element, self._named)
        if "defaultTopic" in inside:
            self.default = self._action(inside["defaultTopic"].leaf())
        # In the TOML file, a topic inherits limits from [batching]; in Bruce, it inherits none. The
        # table of a topic therefore sets all limits.
        complete = self.default["mode"] == "per_topic"
        for topic in inside["topicConfigs"].items("topic") if "topicConfigs" in inside else ():
            name_once(topic, self.topics)
            self.topics[topic.text("name")] = self._action(topic, complete=complete)

    def _action(self, element: Element, *, complete: bool = False) -> Table:
        action = element.text("action")
        if action == "disable":
            return {"mode": "off"}
        if action == "combinedTopics":
            if element.text("config", ""):
                raise element.error("combinedTopics has no `config` here")
            if self.combined is None:
                raise element.error("<combinedTopics> is not enabled")
            return {"mode": "combined"}
        if action != "perTopic":
            raise element.error(f"{action!r} is no action: perTopic, combinedTopics, disable")
        return {"mode": "per_topic", **of_name(element, self._named).table(complete=complete)}


class Compression:
    """Reads the section `<compression>`: options of [compression] and [topics.NAME.compression]."""

    def __init__(self, section: Element | None) -> None:
        self.default: Table = {"type": "none"}
        self.topics: dict[str, Table] = {}
        self.notes: list[str] = []
        if section is None:
            return
        inside = section.sections(
            ("namedConfigs", "sizeThresholdPercent", "defaultTopic", "topicConfigs")
        )
        percent = 100
        if "sizeThresholdPercent" in inside:
            element = inside["sizeThresholdPercent"].leaf()
            percent = number_of(Given(element.text("value"), element.error), most=100)
        named: dict[str, Table] = {}
        for config in inside["namedConfigs"].items("config") if "namedConfigs" in inside else ():
            name_once(config, named)
            named[config.text("name")] = self._named_config(config, percent)
        if "defaultTopic" in inside:
            self.default = of_name(inside["defaultTopic"].leaf(), named)
        for topic in inside["topicConfigs"].items("topic") if "topicConfigs" in inside else ():
            name_once(topic, self.topics)
            self.topics[topic.text("name")] = of_name(topic, named)

    def _named_config(self, config: Element, percent: int) -> Table:
        kind = config.text("type")
        if kind not in ("none", "snappy", "gzip", "lz4"):
            raise config.error(f"{kind!r} is no type: none, snappy, gzip, lz4")
        if kind == "none":
            return {"type": "none"}
        given = Given(config.text("minSize"), config.error, suffixes=True)
        table: Table = {
            "type": kind,
            "min_bytes": number_of(given),
            "max_ratio": percent / 100,
        }
        level = config.text("level", "")
        if not level:
            return table
        if kind != "gzip":
            self.notes.append(f"`level` of a {kind} configuration is ignored, as before.")
            return table
        if not re.fullmatch("-1|[0-9]", level):
            raise config.error(f"{level!r} is no level of gzip: -1 to 9")
        if level == "0":
            self.notes.append("gzip of level 0 does not compress: the type is none here.")
            return {"type": "none"}
        if level != "-1":  # -1 means zlib's default; aiokq uses it if no level is set
            table["level"] = int(level)
        return table


class Rates:
    """Reads the section `<topicRateLimiting>`: a default limit, and limits by topic."""

    def __init__(self, section: Element | None) -> None:
        self.default: dict[str, Value] | None = None
        self.topics: dict[str, dict[str, Value] | None] = {}
        if section is None:
            return
        inside = section.sections(("namedConfigs", "defaultTopic", "topicConfigs"))
        named: dict[str, dict[str, Value] | None] = {}
        for config in inside["namedConfigs"].items("config") if "namedConfigs" in inside else ():
            name_once(config, named)
            count = config.text("maxCount")
            if count == "unlimited":
                named[config.text("name")] = None
                continue
            named[config.text("name")] = {
                "interval_ms": number_of(Given(config.text("interval"), config.error), least=1),
                "max_messages": number_of(Given(count, config.error, suffixes=True)),
            }
        if "defaultTopic" not in inside:
            raise section.error("the element <defaultTopic> is missing")
        self.default = of_name(inside["defaultTopic"].leaf(), named)
        for topic in inside["topicConfigs"].items("topic") if "topicConfigs" in inside else ():
            name_once(topic, self.topics)
            self.topics[topic.text("name")] = of_name(topic, named)


def _limits(config: Element) -> Limits:
    inside = config.sections(("time", "messages", "bytes"))
    values: list[int | None] = []
    for name, suffixes in (("time", False), ("messages", True), ("bytes", True)):
        if name not in inside:
            values.append(None)
            continue
        element = inside[name].leaf()
        text = element.text("value")
        given = Given(text, element.error, suffixes=suffixes)
        least = 0 if name == "time" else 1
        values.append(None if text == "disable" else number_of(given, least=least))
    if values == [None, None, None]:
        raise config.error("one of <time>, <messages> and <bytes> must have a limit")
    return Limits(*values)
