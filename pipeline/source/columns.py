"""The columns of a topic's table, and the check of a user's own schema.

Lives here: names, Spark types, the default schema, ``check_schema``.
"""

import difflib
from typing import Final

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pocketmq.pipeline.errors import SchemaIllegal

TYPES: Final[dict[str, DataType]] = {
    "topic": StringType(),
    "broker": StringType(),
    "queue_id": IntegerType(),
    "queue_offset": LongType(),
    "msg_id": StringType(),
    "keys": StringType(),
    "tags": StringType(),
    "properties": MapType(StringType(), StringType()),
    "body": BinaryType(),
    "born_timestamp": TimestampType(),
    "store_timestamp": TimestampType(),
    "born_host": StringType(),
    "reconsume_times": IntegerType(),
    "sharding_key": StringType(),
    "user_properties": MapType(StringType(), StringType()),
}
"""Column → type, in the order of the default schema."""
PROPERTIES: Final = "properties"
NAMED_ONLY: Final = frozenset({"sharding_key", "user_properties"})
"""Columns that a query gets when its schema names them."""


def default_schema(*, with_properties: bool) -> StructType:
    """Return all columns; the map of properties only on request, because it costs half of a scan."""
    names = [name for name in TYPES if name not in NAMED_ONLY and (name != PROPERTIES or with_properties)]
    return StructType([StructField(name, TYPES[name]) for name in names])


def check_schema(schema: StructType) -> tuple[str, ...]:
    """Return the columns to read, in the user's order. Raises ``SchemaIllegal``."""
    if not schema.fields:
        raise SchemaIllegal("schema refused", why="it has no columns", hint="name at least one, queue_offset is cheap")
    for field in schema.fields:
        wanted = TYPES.get(field.name)
        if wanted is None:
            near = difflib.get_close_matches(field.name.lower(), TYPES, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else "columns: " + ", ".join(TYPES)
            raise SchemaIllegal("schema refused", why=f"messages have no column {field.name}", hint=hint)
        if field.dataType.simpleString() != wanted.simpleString():  # without nullability
            raise SchemaIllegal(
                "schema refused",
                why=f"{field.name} is {wanted.simpleString()}, not {field.dataType.simpleString()}",
                hint="read it as it is and cast it in the query",
            )
    return tuple(field.name for field in schema.fields)
