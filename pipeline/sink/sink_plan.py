"""A sink's options and columns, checked before a job begins.

Lives here: ``SinkPlan``.
"""

import difflib
import uuid
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import BinaryType, DataType, IntegerType, MapType, StringType, StructType, TimestampType

from pocketmq.client.message.validation import check_sendable_topic
from pocketmq.client.staged.chunk_writer import CHUNK_BYTES
from pocketmq.common.errors import PocketMQError
from pocketmq.common.message_fields import SINK_COLUMNS
from pocketmq.common.topics import check_group_name
from pocketmq.pipeline.access import ACCESS_OPTIONS, NO_ACCESS, Access
from pocketmq.pipeline.errors import OptionIllegal, SchemaIllegal
from pocketmq.pipeline.options import Options
from pocketmq.pipeline.servers import namesrv_of

SINK_OPTIONS: Final = (
    "namesrv",
    "topic",
    "group",
    "transactional",
    "txnAppId",
    "txnVersion",
    "brokerWaitMs",
    "chunkBytes",
    "keepHours",
    "brokersGone",
    "failOnDataLoss",
    *ACCESS_OPTIONS,
)
DEFAULT_GROUP: Final = "pocketmq-spark-sink"
BROKER_WAIT_MS: Final = 300_000
KEEP_HOURS: Final = 720
BATCH_KEEP_HOURS: Final = 1
"""Of a batch write without ``txnAppId``: only Spark repeats it, within the job. When brokers know too many
transactional ids, the oldest of these make room for new ones."""
KEEP_HOURS_MAX: Final = 24 * 365
ID_CHARS_MAX: Final = 200

_SPARK_TYPES: Final[dict[str, tuple[type[DataType], ...]]] = {
    "binary": (BinaryType, StringType),
    "string": (StringType,),
    "int32": (IntegerType,),
    "map<string, string>": (MapType,),
}
LEVEL: Final = "delay_level"
DELIVER_AT: Final = "deliver_at"
DELAY_COLUMNS: Final = (LEVEL, DELIVER_AT)
USER_PROPERTIES: Final = "user_properties"
"""As the source calls the properties that are the user's own, so that a topic can be copied."""
COLUMNS: Final[dict[str, tuple[type[DataType], ...]]] = {
    **{name: _SPARK_TYPES[kind] for name, kind in SINK_COLUMNS.items()},
    USER_PROPERTIES: (MapType,),
    LEVEL: (IntegerType,),
    DELIVER_AT: (TimestampType,),
}
"""Column → the Spark types that it may have."""
KAFKA_COLUMNS: Final = {
    "value": "body",
    "key": "keys (to find a message) or sharding_key (to keep an order)",
    "headers": "properties",
    "partition": "sharding_key",
}


@dataclass(slots=True, frozen=True)
class SinkPlan:
    """How rows are written; plain data, sent with tasks. ``topic`` None: taken from a column."""

    namesrv: str
    topic: str | None
    group: str
    transactional: bool
    wait_ms: int
    chunk_bytes: int
    keep_hours: int
    transactional_id: str
    """Of the transaction; empty: that of the streaming query."""
    version: int
    """Of a batch write."""
    gone: tuple[str, ...] = ()
    """Brokers that will never return."""
    fail_on_data_loss: bool = True
    has_delays: bool = False
    """Whether there is a column of delays."""
    access: Access = NO_ACCESS

    @classmethod
    def of(cls, options: Options, schema: StructType, *, streaming: bool) -> "SinkPlan":
        """Read and check options and columns. Raises ``OptionIllegal``, ``SchemaIllegal``."""
        topic = options.text("topic", "") or None
        if topic is not None:
            try:
                check_sendable_topic(topic)
            except PocketMQError as error:
                raise OptionIllegal("bad option", why=f"topic={topic!r}: {error}") from error
        check_columns(schema, topic)
        group = options.text("group", DEFAULT_GROUP)
        try:
            check_group_name(group)
        except PocketMQError as error:
            raise OptionIllegal("bad option", why=f"group={group!r}: {error}") from error
        transactional = options.flag("transactional", True)
        delays = [name for name in DELAY_COLUMNS if name in schema.names]
        if delays and transactional:
            raise OptionIllegal(
                "cannot be written",
                why=f"a transaction holds no delayed messages, and there is a column {delays[0]}",
                hint='.option("transactional", "false"): at least once; or drop the column',
            )
        transactional_id = options.text("txnAppId", "")
        if len(transactional_id) > ID_CHARS_MAX or not transactional_id.isprintable():
            raise OptionIllegal("bad option", why=f"txnAppId is not 1 to {ID_CHARS_MAX} printable characters")
        for option in ("txnAppId", "txnVersion", "keepHours", "brokersGone", "failOnDataLoss"):
            if option in options and not transactional:
                raise OptionIllegal("bad options", why=f"{option} means nothing with transactional=false")
        if "txnVersion" in options and streaming:
            raise OptionIllegal(
                "bad option",
                why="txnVersion in a stream, which takes the number of the micro-batch",
                hint="leave it out",
            )
        if not streaming and ("txnVersion" in options) != ("txnAppId" in options):
            raise OptionIllegal(
                "bad options",
                why="a batch write takes txnAppId and txnVersion together",
                hint="give each run of the job its own, growing txnVersion; a repeated run keeps it",
            )
        keep_hours = KEEP_HOURS
        if not streaming and not transactional_id:
            transactional_id, keep_hours = f"spark-batch-{uuid.uuid4()}", BATCH_KEEP_HOURS
        return cls(
            namesrv=namesrv_of(options),
            topic=topic,
            group=group,
            transactional=transactional,
            wait_ms=options.number("brokerWaitMs", BROKER_WAIT_MS, 0, 86_400_000),
            chunk_bytes=options.number("chunkBytes", CHUNK_BYTES, 4096, 3 << 20),
            keep_hours=options.number("keepHours", keep_hours, 1, KEEP_HOURS_MAX),
            transactional_id=transactional_id,
            version=options.number("txnVersion", 0),
            gone=tuple(sorted({text.strip() for text in options.text("brokersGone", "").split(",")} - {""})),
            fail_on_data_loss=options.flag("failOnDataLoss", True),
            has_delays=bool(delays),
            access=Access.of(options),
        )


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raise ``SchemaIllegal`` for a column that is unknown, missing, or of the wrong type."""
    for field in schema.fields:
        wanted = COLUMNS.get(field.name)
        if wanted is None:
            near = difflib.get_close_matches(field.name.lower(), COLUMNS, n=1, cutoff=0.5)
            hint = KAFKA_COLUMNS.get(field.name.lower()) or (near[0] if near else "")
            raise SchemaIllegal(
                "cannot be written",
                why=f"there is no column {field.name} in a message ({field.dataType.simpleString()})",
                hint=f"did you mean {hint}?" if hint else "select or drop: columns are " + ", ".join(COLUMNS),
            )
        is_map = isinstance(field.dataType, MapType)
        texts = not is_map or (
            isinstance(field.dataType, MapType)
            and isinstance(field.dataType.keyType, StringType)
            and isinstance(field.dataType.valueType, StringType)
        )
        if not isinstance(field.dataType, wanted) or not texts:
            names = " or ".join("map<string,string>" if each is MapType else each().simpleString() for each in wanted)
            raise SchemaIllegal(
                "cannot be written",
                why=f"column {field.name} is {field.dataType.simpleString()}, not {names}",
                hint=_cure(field.name),
            )
    names_given = [field.name for field in schema.fields]
    if "body" not in names_given:
        raise SchemaIllegal(
            "cannot be written",
            why="there is no column body",
            hint='name one, say df.select(to_json(struct("*")).alias("body"))',
        )
    if USER_PROPERTIES in names_given and "properties" in names_given:
        raise SchemaIllegal(
            "cannot be written", why=f"{USER_PROPERTIES} and properties mean the same", hint="drop one of them"
        )
    if topic is None and "topic" not in names_given:
        raise SchemaIllegal(
            "cannot be written", why="no topic is named", hint='.option("topic", …), or a column topic of type string'
        )


def _cure(column: str) -> str:
    if column == "body":
        return "cast it to string, or use to_json or to_avro"
    if column == "keys":
        return "cast it to string; of an array make one text: array_join(keys, ' ')"
    if column == LEVEL:
        return "cast it to int: 1 to 18, the broker's delay levels"
    if column == DELIVER_AT:
        return "cast it to timestamp; of a delay: current_timestamp() + interval 90 seconds"
    if column in ("properties", USER_PROPERTIES):
        return "transform_values(properties, (name, value) -> string(value))"
    return "cast it to string"
