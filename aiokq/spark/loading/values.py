"""ValueDecoder: values of records as a column, and what is said of those that cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

__all__ = [
    "CONFLUENT_PREFIX",
    "Decoded",
    "Reader",
    "RecordDecoder",
    "ValueDecoder",
    "text_reader",
    "without_prefix",
]

CONFLUENT_PREFIX: Final = 5
"""A zero byte and the id of the schema, of four."""

Reader: TypeAlias = Callable[[bytes], object]
"""One value, as what `pyarrow.array` takes; raises ValueError with the reason."""


@dataclass(frozen=True)
class Decoded:
    """The values of some records.

    Attributes:
        values: null where a record has none, and where it is bad.
        errors: by number of the record, why its value cannot be read.
    """

    values: pa.Array
    errors: Mapping[int, str] = field(default_factory=dict)


class ValueDecoder(Protocol):
    """Is sent to the tasks."""

    @property
    def field(self) -> pa.Field:
        """The column ``value``."""

    def decode(self, values: pa.Array) -> Decoded:
        """Values, of type binary; a missing one (a tombstone) stays one, and is not bad."""


@dataclass(frozen=True)
class RecordDecoder:
    """Reads values one after the other.

    Args:
        kind: Arrow's type of the column.
        make: makes the reader, in each process that reads.
        confluent_prefix: skip the bytes of a schema registry.
    """

    kind: pa.DataType
    make: Callable[[], Reader]
    confluent_prefix: bool = False

    @property
    def field(self) -> pa.Field:
        """See `ValueDecoder.field`."""
        import pyarrow as pa

        return pa.field("value", self.kind)

    def decode(self, values: pa.Array) -> Decoded:
        """See `ValueDecoder.decode`."""
        read = self.make()
        errors: dict[int, str] = {}
        found: list[object] = []
        for number, value in enumerate(values.to_pylist()):
            if value is None:
                found.append(None)
                continue
            try:
                found.append(read(without_prefix(value) if self.confluent_prefix else value))
            except ValueError as error:
                errors[number] = str(error)
                found.append(None)
        return self._as_column(found, errors)

    def _as_column(self, found: list[object], errors: dict[int, str]) -> Decoded:
        import pyarrow as pa

        try:
            return Decoded(pa.array(found, self.kind), errors)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            # One of them, which was read, is out of the range of its type.
            for number, value in enumerate(found):
                reason = self._refusal(value)
                if reason is not None:
                    errors[number] = reason
                    found[number] = None
            return Decoded(pa.array(found, self.kind), errors)

    def _refusal(self, value: object) -> str | None:
        import pyarrow as pa

        try:
            pa.array([value], self.kind)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            return str(error)
        return None


def without_prefix(value: bytes) -> bytes:
    """A value behind the prefix of a schema registry.

    Raises:
        ValueError: it has none.
    """
    if len(value) < CONFLUENT_PREFIX or value[0] != 0:
        raise ValueError("it does not begin with the prefix of a schema registry")
    return value[CONFLUENT_PREFIX:]


def text_reader() -> Reader:
    """Of text."""
    return _text


def _text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8: {error.reason} at byte {error.start}") from error
