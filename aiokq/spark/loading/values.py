"""ValueDecoder: decodes record values into a column, and reports each undecodable value."""

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
"""Length of the prefix: a zero byte and a schema id of four bytes."""

Reader: TypeAlias = Callable[[bytes], object]
"""Function that decodes one value for `pyarrow.array`, or raises ValueError with the reason."""


@dataclass(frozen=True)
class Decoded:
    """Decoded values of some records.

    Attributes:
        values: null for records without a value, and for undecodable values.
        errors: reasons why values cannot be decoded, by number of the record in the batch.
    """

    values: pa.Array
    errors: Mapping[int, str] = field(default_factory=dict)


class ValueDecoder(Protocol):
    """Decoder of values; pickled and sent to the tasks."""

    @property
    def field(self) -> pa.Field:
        """The column ``value``."""

    def decode(self, values: pa.Array) -> Decoded:
        """Decode values of type binary; null (a tombstone) stays null, without an error."""


@dataclass(frozen=True)
class RecordDecoder:
    """Decoder that reads values one by one.

    Args:
        kind: Arrow type of the column.
        make: function that creates a reader; called in the tasks, for each batch of rows.
        confluent_prefix: whether to skip the prefix of a schema registry.
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
            # At least one value that the reader accepted is out of the range of its type.
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
    """Return a value without the prefix of a schema registry.

    Raises:
        ValueError: the value has no such prefix.
    """
    if len(value) < CONFLUENT_PREFIX or value[0] != 0:
        raise ValueError("the value does not begin with the prefix of a schema registry")
    return value[CONFLUENT_PREFIX:]


def text_reader() -> Reader:
    """Return the reader of UTF-8 text."""
    return _text


def _text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error.reason} at byte {error.start}") from error
