"""Choice of the version in which to send a message, by the fields that the message sets.

The newest version that both sides support may lack a field that the message sets, because newer
versions removed some fields: FindCoordinator has `key` only up to version 3, and Fetch has `topic`
only up to version 12.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from aiokq.core.named_tuple import NamedTuple
from aiokq.wire.fields import ALWAYS
from aiokq.wire.primitives import FieldNotSupported
from aiokq.wire.struct import Message, Struct

__all__ = ["newest_version"]


class _Need(NamedTuple):
    """A field that a message sets, and the versions that have the field."""

    name: str
    since: int
    until: int
    ignorable: bool

    def met(self, version: int) -> bool:
        return self.since <= version <= self.until

    def __str__(self) -> str:
        if self.until == ALWAYS:
            return f"{self.name} (version {self.since} or newer)"
        return f"{self.name} (versions {self.since} to {self.until})"


def newest_version(message: Message, oldest: int, newest: int) -> int:
    """Return the newest version from `oldest` to `newest` that has every field the message sets.

    If there is no such version, return the newest version that lacks only ignorable fields.

    Raises:
        FieldNotSupported: each version lacks a field that is set and not ignorable. The error names
            the fields and their versions.
    """
    needs = set(_needs(message, "", type(message).FLEXIBLE_SINCE, droppable=False))
    strict = [need for need in needs if not need.ignorable]
    for wanted in (needs, strict):
        for version in range(newest, oldest - 1, -1):
            if all(need.met(version) for need in wanted):
                return version
    limiting = sorted(need for need in strict if not (need.met(oldest) and need.met(newest)))
    raise FieldNotSupported(
        f"no version from {oldest} to {newest}, which both sides support, has a field for each "
        "value that is set: " + ", ".join(map(str, limiting)),
        api=message.NAME,
        version=newest,
    )


def _needs(
    struct: Struct, prefix: str, flexible_since: int | None, *, droppable: bool
) -> Iterator[_Need]:
    """Yield each field that does not have its default, in a struct and in its nested structs.

    Args:
        droppable: whether the struct may be dropped, because the field that contains it is
            ignorable.
    """
    if struct.unknown_tags:
        since = ALWAYS if flexible_since is None else flexible_since
        yield _Need(f"{prefix}unknown_tags", since, ALWAYS, droppable)
    for field in struct.__fields__:
        value = getattr(struct, field.name)
        if field.is_default(value):
            continue
        since = field.since
        if value is None and field.nullable_since is not None:
            since = max(since, field.nullable_since)
        ignorable = droppable or field.ignorable
        name = prefix + field.name
        yield _Need(name, since, field.until, ignorable)
        if isinstance(field.of, type) and value is not None:
            inner = value if field.kind == "array" else (value,)
            for element in cast("Iterable[Struct]", inner):
                yield from _needs(element, f"{name}.", flexible_since, droppable=ignorable)
