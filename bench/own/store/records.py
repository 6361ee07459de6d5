"""Records without a network or a disk: building, checking, patching and decoding, in µs a record.

The cases name the body size and how many records one pass holds. Best of several repeats: the cost of the code, not of
a busy machine.
"""

import timeit
from collections.abc import Callable, Iterator

import numpy as np

from bench.base.harness import scaled
from pocketmq.client.arrow.arrow import COLUMNS, records_to_arrow
from pocketmq.common.clock import SystemClock
from pocketmq.common.message import Message
from pocketmq.common.message_id import UniqueIdGenerator
from pocketmq.common.plain_check import (
    PlainChecker,
    PlainRules,
    check_plain,
    check_plain_columns,
    check_plain_scalar,
)
from pocketmq.common.record_codec import PlainRecordBuilder
from pocketmq.common.record_columns import parse_columns, patch, received_messages
from pocketmq.common.record_group import GroupSection, RecordGroup

CLUSTER = "DefaultCluster"
TOPIC = "TopicTest"
REPEATS = scaled(7, 2)
PASS_MS = scaled(30, 5)
HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])


def best_us(call: Callable[[], object], units: int) -> float:
    """Return the best time of ``call`` divided by ``units``, in µs."""
    call()
    rounds = max(1, int(PASS_MS / 1000 / max(timeit.timeit(call, number=1), 1e-7)))
    return min(timeit.repeat(call, number=rounds, repeat=REPEATS)) / rounds / units * 1e6


def records(count: int, body_bytes: int, *, keys: bool = False, tags: str = "TagA") -> list[bytes]:
    """Return ``count`` plain records."""
    builder = PlainRecordBuilder(CLUSTER)
    ids = UniqueIdGenerator(SystemClock()).next_bytes(count)
    body = bytes(range(256)) * (body_bytes // 256 + 1)
    result = []
    for number, uniq_key in enumerate(ids):
        message = Message(TOPIC, body[:body_bytes], tags=tags, keys=f"order-{number}" if keys else ())
        result.append(builder.build(message, 0, uniq_key, 1_700_000_000_000))
    return result


def run() -> Iterator[dict[str, object]]:
    """Yield one result a case: its name and µs a record."""

    def result(case: str, us: float) -> dict[str, object]:
        return {"case": case, "us_per_record": round(us, 3)}

    ids = UniqueIdGenerator(SystemClock())
    builder = PlainRecordBuilder(CLUSTER)
    body = b"x" * 100
    plain, keyed = Message(TOPIC, body, tags="TagA"), Message(TOPIC, body, tags="TagA", keys="order-1")
    uniq_key = ids.next().encode()
    many = range(1000)
    yield result("Message(topic, body)", best_us(lambda: [Message(TOPIC, body) for _ in many], 1000))
    yield result("UniqueIdGenerator.next", best_us(lambda: [ids.next() for _ in many], 1000))
    now_ms = SystemClock().now_ms()
    yield result("UniqueIdGenerator.next(now_ms)", best_us(lambda: [ids.next(now_ms) for _ in many], 1000))
    yield result("UniqueIdGenerator.next_bytes(1000)", best_us(lambda: ids.next_bytes(1000), 1000))
    build = builder.build
    born = 1_700_000_000_000
    yield result("build 100 B, tags", best_us(lambda: [build(plain, 0, uniq_key, born) for _ in many], 1000))
    yield result("build 100 B, tags and keys", best_us(lambda: [build(keyed, 0, uniq_key, born) for _ in many], 1000))
    for body_bytes, keys in ((100, False), (1024, False), (100, True)):
        for count in (1, 8, 32, 1000):
            what = f"{body_bytes} B{' with keys' if keys else ''}, {count} a pass"
            for name, call in passes(records(count, body_bytes, keys=keys)):
                yield result(f"{name}: {what}", best_us(call, count))


def passes(made: list[bytes]) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield what is done to these records in one pass."""
    checker = PlainChecker(PlainRules(cluster=CLUSTER.encode()))
    count = len(made)
    buffer = np.frombuffer(bytearray(b"".join(made)), np.uint8)
    sizes = np.array([len(record) for record in made], ">u4")
    sections = [GroupSection(TOPIC, 0, 0, count)]
    group = check_plain(buffer, sizes, sections, checker).group
    assert group is not None
    offsets = np.arange(count, dtype=np.int64)
    physical = group.starts + 4096
    raw = buffer.tobytes()
    raw_view = memoryview(bytearray(raw))
    if count <= 32:
        yield "check scalar", lambda: check_plain_scalar(buffer, sizes, sections, checker)
    if count >= 32:
        yield "check in columns", lambda: check_plain_columns(buffer, sizes, sections, checker)
    yield "patch", lambda: patch(group, offsets, physical, 1_700_000_000_000, HOST)
    yield "received_messages", lambda: received_messages(raw, sizes, "broker-a")
    if count >= 1000:
        yield (
            "received_messages and .body",
            lambda: [message.body for message in received_messages(raw, sizes, "broker-a")],
        )
        yield "records_to_arrow, all columns", lambda: records_to_arrow(raw_view, sizes, "broker-a", COLUMNS)
        yield "records_to_arrow, body only", lambda: records_to_arrow(raw_view, sizes, "broker-a", ("body",))
        yield "parse_columns", lambda: parse_columns(buffer, sizes)
        yield "RecordGroup.from_log", lambda: RecordGroup.from_log(buffer)
