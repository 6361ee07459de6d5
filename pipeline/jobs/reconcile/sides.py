"""One side of a comparison: rows with identity, place, time and content, from a topic or a table.

Lives here: ``Wish`` (the user's options for a side), ``side_of``.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pocketmq.common.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

QUEUE: Final = ("topic", "broker", "queue_id")
OFFSET: Final = "queue_offset"
TIME: Final = "store_timestamp"
SEPARATOR: Final = "\x1f"
SHOWN: Final = 80


@dataclass(slots=True, frozen=True)
class Wish:
    """The user's options for a side. ``by``: columns that identify a message; ``time``: empty for ``store_timestamp``;
    ``compare``: columns whose content must agree.
    """

    name: str
    by: tuple[str, ...]
    time: str = ""
    order_by: tuple[str, ...] = ()
    compare: tuple[str, ...] = ()


@dataclass(slots=True)
class Side:
    """Rows with the columns ``id``, ``shown`` (of the id), ``grp`` and ``pos`` (null without order), ``time_us``,
    ``content`` (a hash), ``place`` (text).
    """

    frame: "DataFrame"
    has_time: bool
    has_order: bool


def side_of(frame: "DataFrame", wish: Wish, group_by: str) -> Side:
    """Bring a frame into the common form. ``group_by``: a column within whose values order is checked, or ``queue``.

    Raises ``ConfigError`` for a column that is missing.
    """
    from pyspark.sql import functions as F

    names = frame.columns
    has_queue = all(name in names for name in (*QUEUE, OFFSET))
    time = wish.time or (TIME if TIME in names else "")
    grouped = [] if group_by == "queue" else [group_by]
    wanted = [*wish.by, *grouped, *([time] if time else []), *wish.order_by, *wish.compare]
    for each in wanted:
        if _base(each) not in names:
            raise ConfigError("no such column", why=f"{wish.name} has no {each}", hint="columns: " + ", ".join(names))
    when = F.unix_micros(F.col(time).try_cast("timestamp")) if time else F.lit(None).cast("long")
    if wish.order_by:
        position = F.struct(*wish.order_by)
    elif has_queue:
        position = F.struct(OFFSET)
    elif time:
        position = F.struct(when)
    else:
        position = F.lit(None).cast("struct<none:long>")
    if has_queue:
        place = F.concat_ws("/", "topic", "broker", F.col("queue_id").cast("string"))
        queue = place
        place = F.concat(place, F.lit("@"), F.col(OFFSET).cast("string"))
    else:
        place, queue = F.lit(wish.name), F.lit("")
    group = queue if group_by == "queue" else column(frame, group_by).cast("string")
    if group_by != "queue" and has_queue and not wish.order_by:
        position = F.struct(when, *QUEUE, OFFSET)
    content = F.xxhash64(*(column(frame, each) for each in wish.compare)) if wish.compare else F.lit(0).cast("long")
    identity, shown = _identity(frame, wish.by)
    result = frame.select(
        identity.alias("id"),
        shown.alias("shown"),
        group.alias("grp"),
        queue.alias("queue"),
        position.alias("pos"),
        when.alias("time_us"),
        content.alias("content"),
        place.alias("place"),
    )
    return Side(result, bool(time), bool(wish.order_by) or has_queue or bool(time))


def column(frame: "DataFrame", name: str) -> "Column":
    """Return a column, or a property of the messages for ``properties.NAME``."""
    from pyspark.sql import functions as F

    base, dot, key = name.partition(".")
    if dot and name not in frame.columns and base in frame.columns:
        return F.col(base).getItem(key)
    return F.col(f"`{name}`")


def _base(name: str) -> str:
    return "properties" if name.startswith("properties.") else name


def _identity(frame: "DataFrame", by: tuple[str, ...]) -> "tuple[Column, Column]":
    """Return the identity (null for a message without one) and its display text."""
    from pyspark.sql import functions as F

    kinds = {field.name: field.dataType.typeName() for field in frame.schema.fields}
    parts, shown = [], []
    for each in by:
        value = column(frame, each)
        text = value.cast("string")
        if kinds.get(each) == "binary":
            parts.append(F.when(F.octet_length(value) > 0, F.sha2(value, 256)))
            text = F.decode(F.substring(value, 1, SHOWN), "ISO-8859-1")
        elif each == "body":  # text on one side equals binary on the other
            parts.append(F.when(F.octet_length(text) > 0, F.sha2(text.cast("binary"), 256)))
        else:
            parts.append(F.when(text != "", text))
        shown.append(F.coalesce(text, F.lit("")))
    whole = parts[0] if len(parts) == 1 else F.concat(*[p for part in parts for p in (part, F.lit(SEPARATOR))])
    return whole, F.substring(F.concat_ws(" ", *shown), 1, SHOWN)
