"""Rows of a topic's table as rows for the sink.

Lives here: ``for_sink``.
"""

from typing import TYPE_CHECKING, Final

from pocketmq.client.message.validation import SYSTEM_PROPERTIES
from pocketmq.common.message_fields import SINK_COLUMNS
from pocketmq.common.record import SHARDING_KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUEUE: Final = ("topic", "broker", "queue_id")
OFFSET: Final = "queue_offset"
AS_THEY_ARE: Final = tuple(name for name in SINK_COLUMNS if name not in ("topic", "properties", "sharding_key"))


def for_sink(frame: "DataFrame", *, sort: bool) -> "DataFrame":
    """Return body, tags, keys, the users' properties and the sharding key, if there are such columns.

    A message without a sharding key gets its queue as one, so that messages of one queue stay together; ``sort`` keeps
    their order.
    """
    from pyspark.sql import functions as F

    names = frame.columns
    has_queue = all(name in names for name in (*QUEUE, OFFSET))
    if sort and has_queue:
        frame = frame.repartition(*QUEUE).sortWithinPartitions(*QUEUE, OFFSET)
    columns = [F.col(name) for name in AS_THEY_ARE if name in names]
    shard = F.lit(None).cast("string")
    if "properties" in names:
        system = F.array(*(F.lit(name) for name in sorted(SYSTEM_PROPERTIES)))
        columns.append(F.map_filter("properties", lambda name, _: ~F.array_contains(system, name)).alias("properties"))
        shard = F.col("properties").getItem(SHARDING_KEY)
    elif "sharding_key" in names:
        shard = F.col("sharding_key")
    if has_queue:
        shard = F.coalesce(shard, F.concat_ws("/", *(F.col(name).cast("string") for name in QUEUE)))
    return frame.select(*columns, shard.alias("sharding_key"))
