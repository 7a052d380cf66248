"""ValueSchema: the options value_format and value_schema, and the decoder that they describe."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiokq.spark.loading.avro_values import AvroReaders, arrow_of_avro
from aiokq.spark.loading.failures import one_line_of
from aiokq.spark.loading.json_schema import arrow_of_json_schema, arrow_of_spark
from aiokq.spark.loading.json_values import JsonReaders
from aiokq.spark.loading.options import LoadOptions, OptionError
from aiokq.spark.loading.values import RecordDecoder, ValueDecoder, text_reader

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

__all__ = ["ValueSchema"]

_FILES: Final = (".json", ".avsc", ".ddl", ".sql", ".txt")


class ValueSchema:
    """Format and schema of the values of a load.

    Schemas are checked here as far as possible without Spark; DDL text needs a session.

    Raises:
        OptionError: the schema cannot be read, or is not a schema.
    """

    def __init__(self, options: LoadOptions) -> None:
        self._options = options
        self._text = None if options.value_schema is None else _text(options.value_schema)
        self._document = _document(self._text)
        self._kind: pa.DataType | None = None
        if options.value_format == "avro":
            if self._document is None:
                raise OptionError("value_schema", "an Avro schema must be JSON")
            self._kind = _checked(lambda: arrow_of_avro(self._document))
        elif options.value_format == "json" and self._document is not None:
            self._kind = _checked(self._of_json)

    def identity(self) -> object:
        """Return the schema without formatting, or None if there is none.

        All runs of a load need the same schema.
        """
        if self._document is not None or self._text is None:
            return self._document
        return " ".join(self._text.split())

    def decoder(self) -> ValueDecoder | None:
        """Return the decoder for the tasks; None for format bytes. DDL text needs a Spark session.

        Raises:
            OptionError: the text is not a schema.
        """
        import pyarrow as pa

        prefix = self._options.confluent_prefix
        match self._options.value_format:
            case "bytes":
                return None
            case "text":
                return RecordDecoder(pa.string(), text_reader, prefix)
            case "avro":
                assert self._kind is not None
                return RecordDecoder(self._kind, AvroReaders(self._document), prefix)
        kind = self._kind if self._kind is not None else _checked(self._of_words)
        return RecordDecoder(kind, JsonReaders(kind), prefix)

    def _of_json(self) -> pa.DataType:
        document = self._document
        if not isinstance(document, Mapping):
            raise ValueError("neither a JSON Schema nor a Spark schema")
        if document.get("type") == "struct":
            return arrow_of_spark(document)
        return arrow_of_json_schema(document)

    def _of_words(self) -> pa.DataType:
        from pyspark.errors import PySparkException
        from pyspark.sql.types import StructType

        assert self._text is not None
        try:
            found = StructType.fromDDL(self._text)
        except PySparkException as error:
            raise ValueError(one_line_of(error)) from error
        return arrow_of_spark(found.jsonValue())


def _checked(make: Callable[[], pa.DataType]) -> pa.DataType:
    try:
        return make()
    except ValueError as error:
        raise OptionError("value_schema", str(error)) from error


def _text(given: str | Path) -> str:
    path = Path(given)
    if isinstance(given, str) and not (given.endswith(_FILES) or _is_file(path)):
        return given
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise OptionError("value_schema", f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise OptionError("value_schema", f"{path} is not UTF-8 text") from error


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # text that is not a path, for example because of its length
        return False


def _document(text: str | None) -> object:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        if text.lstrip().startswith(("{", "[")):
            raise OptionError(
                "value_schema", "the text begins like JSON, but is not valid JSON"
            ) from None
        return None
