"""The text of RocketMQ's message trace.

Lives here: ``TraceRecord`` and its codec (RocketMQ TraceDataEncoder).

A record's fields are joined by 0x01 and end with 0x02::

    Pub        time region group topic msg_id tags keys store_host body_bytes cost message_type offset_msg_id success
    SubBefore  time region group request_id msg_id retry_times keys
    SubAfter   request_id msg_id cost success keys context_code [time group]

Times are ms since 1970, costs ms. A trace message is many of them; its keys are the ids and keys of the messages.
"""

import enum
from dataclasses import dataclass
from typing import Final

FIELD: Final = "\x01"
RECORD: Final = "\x02"
RECORDS_MAX: Final = 10_000
"""Records taken from one body: a trace message of RocketMQ has 128,000 bytes at most."""


class TraceType(enum.Enum):
    """RocketMQ TraceType."""

    PUB = "Pub"
    SUB_BEFORE = "SubBefore"
    SUB_AFTER = "SubAfter"


class TracedKind(enum.IntEnum):
    """RocketMQ MessageType, by its ordinal."""

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAY = 3
    ORDER = 4


class ContextCode(enum.IntEnum):
    """How a consumption ended: RocketMQ ConsumeReturnType, by its ordinal."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNNULL = 3
    FAILED = 4


@dataclass(slots=True, frozen=True, kw_only=True)
class TraceRecord:
    """One step of one message. Fields that a type does not carry keep their defaults."""

    trace_type: TraceType
    msg_id: str
    timestamp_ms: int = 0
    region: str = ""
    group: str = ""
    topic: str = ""
    tags: str = ""
    keys: str = ""
    store_host: str = ""
    body_bytes: int = 0
    cost_ms: int = 0
    kind: int = 0
    offset_msg_id: str = ""
    success: bool = True
    request_id: str = ""
    retry_times: int = 0
    context_code: int = 0

    def encode(self) -> str:
        """Return the record with its end."""
        fields: list[object]
        match self.trace_type:
            case TraceType.PUB:
                fields = [
                    self.timestamp_ms, self.region, self.group, self.topic, self.msg_id, self.tags, self.keys,
                    self.store_host, self.body_bytes, self.cost_ms, int(self.kind), self.offset_msg_id,
                    _bool(self.success),
                ]  # fmt: skip
            case TraceType.SUB_BEFORE:
                fields = [
                    self.timestamp_ms, self.region, self.group, self.request_id, self.msg_id, self.retry_times,
                    self.keys,
                ]  # fmt: skip
            case TraceType.SUB_AFTER:
                fields = [
                    self.request_id, self.msg_id, self.cost_ms, _bool(self.success), self.keys,
                    int(self.context_code), self.timestamp_ms, self.group,
                ]  # fmt: skip
        return FIELD.join([self.trace_type.value, *map(str, fields)]) + RECORD

    def index_keys(self) -> set[str]:
        """Return the index keys of a trace message with this record (RocketMQ TraceTransferBean.transKey)."""
        return {self.msg_id, *self.keys.split()}


def _bool(value: bool) -> str:
    return "true" if value else "false"


def decode_records(body: bytes) -> list[TraceRecord]:
    """Return the records of a trace message; records of another type, and damaged ones, are left out."""
    records: list[TraceRecord] = []
    for text in body.decode("utf-8", "replace").split(RECORD, RECORDS_MAX)[:RECORDS_MAX]:
        # Java writes "null" for missing values
        fields = ["" if field == "null" else field for field in text.split(FIELD)]
        try:
            record = _decode(fields)
        except (IndexError, ValueError):
            continue
        if record is not None:
            records.append(record)
    return records


def _decode(fields: list[str]) -> TraceRecord | None:
    if fields[0] == TraceType.PUB.value:
        return TraceRecord(
            trace_type=TraceType.PUB,
            timestamp_ms=int(fields[1]),
            region=fields[2],
            group=fields[3],
            topic=fields[4],
            msg_id=fields[5],
            tags=fields[6],
            keys=fields[7],
            store_host=fields[8],
            body_bytes=int(fields[9]),
            cost_ms=int(fields[10]),
            kind=int(fields[11]),
            # RocketMQ before 4.4 wrote no offset id
            offset_msg_id=fields[12] if len(fields) > 13 else "",
            success=(fields[13] if len(fields) > 13 else fields[12]) == "true",
        )
    if fields[0] == TraceType.SUB_BEFORE.value:
        return TraceRecord(
            trace_type=TraceType.SUB_BEFORE,
            timestamp_ms=int(fields[1]),
            region=fields[2],
            group=fields[3],
            request_id=fields[4],
            msg_id=fields[5],
            retry_times=int(fields[6]),
            keys=fields[7],
        )
    if fields[0] == TraceType.SUB_AFTER.value:
        return TraceRecord(
            trace_type=TraceType.SUB_AFTER,
            request_id=fields[1],
            msg_id=fields[2],
            cost_ms=int(fields[3]),
            success=fields[4] == "true",
            keys=fields[5],
            # 4.9's cloud channel and old clients end earlier
            context_code=int(fields[6]) if len(fields) > 6 else 0,
            timestamp_ms=int(fields[7]) if len(fields) > 8 else 0,
            group=fields[8] if len(fields) > 8 else "",
        )
    return None
