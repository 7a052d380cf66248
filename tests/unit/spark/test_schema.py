"""Columns of the source: exactly Spark's, as DDL and as Arrow types."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from aiokq.errors import ConfigError
from aiokq.spark.schema import COLUMNS, Projection, check_columns, ddl

types = pytest.importorskip("pyspark.sql.types")


def schema(*fields: tuple[str, object], nullable: bool = True) -> types.StructType:
    return types.StructType([types.StructField(name, kind, nullable) for name, kind in fields])


HEADERS = types.ArrayType(
    types.StructType(
        [
            types.StructField("key", types.StringType()),
            types.StructField("value", types.BinaryType()),
        ]
    )
)
WHOLE = schema(
    ("key", types.BinaryType()),
    ("value", types.BinaryType()),
    ("topic", types.StringType()),
    ("partition", types.IntegerType()),
    ("offset", types.LongType()),
    ("timestamp", types.TimestampType()),
    ("timestampType", types.IntegerType()),
    ("headers", HEADERS),
)


def test_the_arrow_schema_is_what_spark_makes_of_its_own() -> None:
    """Spark compares it with the first batch, and refuses any difference."""
    from pyspark.sql.pandas.types import to_arrow_schema

    assert Projection(WHOLE).arrow_schema.equals(to_arrow_schema(WHOLE, timezone="UTC"))


def test_the_schema_language_gives_the_same_columns() -> None:
    """DataSource.schema() returns this DDL."""
    assert ddl(tuple(COLUMNS)).startswith("key binary, value binary, topic string")
    assert Projection(WHOLE).columns == tuple(COLUMNS)


def test_a_users_schema_chooses_columns_in_its_order_and_spelling() -> None:
    """Spark is case-insensitive; the batch must have the names as the user wrote them."""
    projection = Projection(schema(("OFFSET", types.LongType()), ("value", types.BinaryType())))

    assert projection.columns == ("offset", "value")
    assert projection.arrow_schema.names == ["OFFSET", "value"]


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (("colour", types.StringType()), "do not have"),
        (("value", types.StringType()), "cast it in the frame"),
        (("partition", types.LongType()), "the column is int"),
    ],
)
def test_a_schema_that_records_do_not_have_is_refused(
    field: tuple[str, object], message: str
) -> None:
    """The JVM connector accepts no schema at all; here it has to fit."""
    with pytest.raises(ConfigError, match=message):
        Projection(schema(field))


def test_a_column_twice_is_refused() -> None:
    """Spark would fail later, with a less helpful message."""
    with pytest.raises(ConfigError, match="twice"):
        Projection(schema(("value", types.BinaryType()), ("VALUE", types.BinaryType())))


def test_columns_and_a_schema_that_differ_are_refused() -> None:
    """One of the two must be a mistake."""
    check_columns(("value",), schema(("VALUE", types.BinaryType())))
    with pytest.raises(ConfigError, match="either the option or the schema"):
        check_columns(("key",), schema(("value", types.BinaryType())))


def test_headers_are_given_without_copying_them() -> None:
    """Only the type differs: in Spark's schema the name of a header may be null."""
    pairs = pa.StructArray.from_arrays(
        [pa.array(["a", "b", "c"]), pa.array([b"1", None, b"3"], pa.binary())],
        fields=[pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())],
    )
    headers = pa.ListArray.from_arrays(pa.array([0, 2, None, 3], pa.int32()), pairs)
    projection = Projection(schema(("headers", HEADERS)))

    batch = projection.batch(pa.RecordBatch.from_arrays([headers], names=["headers"]))

    assert batch.schema == projection.arrow_schema
    assert batch.column(0).to_pylist() == headers.to_pylist()
    assert (
        batch.column(0).values.field(0).buffers()[2].address == pairs.field(0).buffers()[2].address
    )


def test_a_projection_can_be_sent_to_workers() -> None:
    """Even after its Arrow schema was created."""
    projection = Projection(WHOLE)
    made = projection.arrow_schema

    assert pickle.loads(pickle.dumps(projection)).arrow_schema == made
