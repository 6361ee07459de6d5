"""A scripted broker for the short path: it answers in the fixed layout, or ends a request in any other way.

``ShortWorld`` is a cluster of such brokers with one producer, which takes the short path or never does.
"""

import asyncio
import random
import re
from collections.abc import Callable
from typing import Any

from pocketmq.client import ClientInstance, Message, Producer
from pocketmq.client.message.receipts import Receipt
from pocketmq.common.record_codec import decode_record, record_size_at
from pocketmq.remoting.codec import encode_response
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.frame import MSGPACK
from pocketmq.remoting.protocol.send import NativeAppendResponseHeader
from tests.client.conftest import ScriptedCluster
from tests.remoting.test_short_frames import answer_of

Ending = Callable[["ShortBroker", Any, Any], None]


class ShortBroker:
    """What one broker has stored, and how it ends the next requests: ``script``, then ``usual``."""

    def __init__(self, server: Any, ending: Ending) -> None:
        self.script: list[Ending] = []
        self.ending = ending
        self.requests: list[Any] = []
        self.held: list[tuple[Any, bytes]] = []
        self.ends: dict[tuple[str, int], int] = {}
        self.log_end = 100
        server.answers[RequestCode.NATIVE_APPEND] = self._append

    def _append(self, connection: Any, request: Any) -> None:
        self.requests.append(request)
        ending = self.script.pop(0) if self.script else self.ending
        ending(self, connection, request)

    def places(self, request: Any) -> list[tuple[int, int, int]]:
        """Store all sections; return (first queue offset, physical offset, count) of each."""
        rows = []
        for topic, queue_id, count in request.header.sections:
            first = self.ends.get((topic, queue_id), 0)
            self.ends[topic, queue_id] = first + count
            rows.append((first, self.log_end, count))
            self.log_end += 1000 * count
        return rows

    def answer(self, request: Any) -> bytes:
        """Store, and return the answer of fixed layout."""
        return answer_of(request.opaque, 5, self.places(request))

    def respond(self, connection: Any, request: Any, code: int, results: Any, **options: Any) -> None:
        """Answer in the usual form."""
        header = None if results is None else NativeAppendResponseHeader(5, results)
        connection.respond(
            encode_response(code, request.opaque, request.code, header=header, serialize_type=MSGPACK, **options)
        )


def write(connection: Any, data: bytes) -> None:
    connection.respond([data])


def short(broker: ShortBroker, connection: Any, request: Any) -> None:
    """All stored, in the fixed layout."""
    write(connection, broker.answer(request))


def usual(broker: ShortBroker, connection: Any, request: Any) -> None:
    """All stored, as the codec writes it."""
    results = [(0, first, [(start, count)], "") for first, start, count in broker.places(request)]
    broker.respond(connection, request, 0, results)


def runs(broker: ShortBroker, connection: Any, request: Any) -> None:
    """All stored, each record in a run of its own."""
    results = [
        (0, first, [(start + 5000 * at, 1) for at in range(count)], "")
        for first, start, count in broker.places(request)
    ]
    broker.respond(connection, request, 0, results)


def pieces(broker: ShortBroker, connection: Any, request: Any) -> None:
    """The answer comes in three writes."""
    data = broker.answer(request)
    write(connection, data[:20])
    loop = asyncio.get_running_loop()
    loop.call_later(0.002, write, connection, data[20:21])
    loop.call_later(0.004, write, connection, data[21:])


def twice(broker: ShortBroker, connection: Any, request: Any) -> None:
    """The same answer comes twice."""
    write(connection, broker.answer(request) * 2)


def stranger(broker: ShortBroker, connection: Any, request: Any) -> None:
    """An answer to a request that nobody made comes first."""
    write(connection, answer_of(request.opaque + 1_000_000, 5, [(9, 9, 1)]) + broker.answer(request))


def flush_timeout(broker: ShortBroker, connection: Any, request: Any) -> None:
    """All stored, but not synced in time."""
    code = int(ResponseCode.FLUSH_DISK_TIMEOUT)
    broker.respond(
        connection, request, 0, [(code, first, [(start, n)], "late") for first, start, n in broker.places(request)]
    )


def busy(broker: ShortBroker, connection: Any, request: Any) -> None:
    """The whole request is refused."""
    broker.respond(connection, request, ResponseCode.SYSTEM_BUSY, None, remark="[OVERLOAD]system busy")


def illegal(broker: ShortBroker, connection: Any, request: Any) -> None:
    """Refused, and not worth another attempt."""
    broker.respond(connection, request, ResponseCode.MESSAGE_ILLEGAL, None, remark="no such thing")


def some_refused(broker: ShortBroker, connection: Any, request: Any) -> None:
    """Every second section is refused."""
    results = [
        (0, first, [(start, count)], "") if at % 2 else (int(ResponseCode.NO_PERMISSION), -1, [], "no permission")
        for at, (first, start, count) in enumerate(broker.places(request))
    ]
    broker.respond(connection, request, 0, results)


def too_few(broker: ShortBroker, connection: Any, request: Any) -> None:
    """Fewer results than sections."""
    broker.respond(connection, request, 0, [])


def other_counts(broker: ShortBroker, connection: Any, request: Any) -> None:
    """The fixed layout, with a record too many."""
    write(connection, answer_of(request.opaque, 5, [(a, b, count + 1) for a, b, count in broker.places(request)]))


def lost(broker: ShortBroker, connection: Any, request: Any) -> None:
    """The connection ends without an answer."""
    connection.abort("scripted")


def cut_at(size: int) -> Ending:
    """Return an ending that writes ``size`` bytes of the answer before the connection ends."""

    def end(broker: ShortBroker, connection: Any, request: Any) -> None:
        connection._transport.write(broker.answer(request)[:size])
        connection._transport.close()

    return end


def garbage(broker: ShortBroker, connection: Any, request: Any) -> None:
    """Bytes that are no frame."""
    write(connection, b"\xff" * 100)


def silent(broker: ShortBroker, connection: Any, request: Any) -> None:
    """No answer."""


def hold(broker: ShortBroker, connection: Any, request: Any) -> None:
    """The answer waits for ``release``."""
    broker.held.append((connection, broker.answer(request)))


def release(broker: ShortBroker) -> None:
    """Give all held answers, in one write."""
    held, broker.held = broker.held, []
    write(held[0][0], b"".join(data for _, data in held))


ENDINGS: list[Ending] = [
    short, usual, runs, pieces, twice, stranger, flush_timeout, busy, illegal, some_refused, too_few, other_counts,
    lost, cut_at(0), cut_at(33), cut_at(59), garbage,
]  # fmt: skip


class ShortWorld:
    """A cluster of short brokers and one producer. ``way``: None for the short path, else it is never taken."""

    def __init__(self, *, wide: bool = False, ending: Ending = short, brokers: int = 1, **options: Any) -> None:
        self.wide = wide
        self.cluster = ScriptedCluster()
        self.brokers: list[ShortBroker] = []
        self.taken = 0
        self._names = [f"b{number}" for number in range(brokers)]
        self._ending = ending
        self._options = options

    @property
    def broker(self) -> ShortBroker:
        return self.brokers[0]

    async def __aenter__(self) -> "ShortWorld":
        cluster = self.cluster
        await cluster.namesrv.start()
        for name in self._names:
            self.brokers.append(ShortBroker(await cluster.add(name), self._ending))
        for topic in ("T", "U", "V"):
            cluster.topics[topic] = self._names
        instance = ClientInstance(cluster.namesrv.address, rng=random.Random(1))
        self.producer: Any = Producer("g", instance=instance, **self._options)
        if self.wide:
            self.producer._add_short = self.producer._add_nowait = None
        else:
            self._count(self.producer)
        await self.producer.start()
        return self

    def _count(self, producer: Any) -> None:
        add = producer._add_short

        def counted(message: Any) -> Any:
            future = add(message)
            self.taken += future is not None
            return future

        producer._add_short = producer._add_nowait = counted

    async def __aexit__(self, *exc: Any) -> None:
        await self.producer.stop()
        await self.cluster.stop()

    async def connect(self) -> None:
        """Know all routes and connections, so that the short path can be taken; forget what was sent for that."""
        for topic in self.cluster.topics:
            for _ in range(2 * len(self.brokers)):
                await self.producer.send(Message(topic, b"first"))
        for broker in self.brokers:
            broker.requests.clear()
        self.taken = 0

    async def results(self, sends: list[tuple[Message, dict[str, Any]]]) -> list[Any]:
        """Send all in one turn; return what each ends with."""
        calls = [asyncio.ensure_future(self.producer.send(message, **options)) for message, options in sends]
        return await asyncio.gather(*calls, return_exceptions=True)

    def stored(self) -> list[Any]:
        """Return what each request asked for, apart from ids and times."""
        return [facts_of(request) for broker in self.brokers for request in broker.requests]


def facts_of(request: Any) -> Any:
    """Return the header and the records of a native append, apart from ids and times."""
    body, count = bytes(request.body), sum(row[2] for row in request.header.sections)
    at, records = 4 * count, []
    for index in range(count):
        assert record_size_at(body, at) == int.from_bytes(body[4 * index : 4 * index + 4], "big")
        record = decode_record(body, at)
        at += record.size
        assert record.born_timestamp > 0
        record.born_timestamp = 0
        key = record.property_map()["UNIQ_KEY"]
        assert len(key) == 32
        record.properties = record.properties.replace(key.encode(), b"")
        records.append(record)
    assert at == len(body)
    header = request.header
    return header.producer_group, header.wait, tuple(map(tuple, header.sections)), records


def per_queue(world: ShortWorld) -> dict[tuple[str, int], list[Any]]:
    """Return the records of each queue in their order, whatever frames they came in."""
    queues: dict[tuple[str, int], list[Any]] = {}
    for _, _, sections, records in world.stored():
        left = list(records)
        for topic, queue_id, count in sections:
            queues.setdefault((topic, queue_id), []).extend(left[:count])
            del left[:count]
    return queues


def end_of(result: Any) -> Any:
    """Return everything public about a receipt or an error, apart from ids, ports and times."""
    if isinstance(result, Receipt):
        assert len(result.msg_id) == 32
        names = [name for name in dir(Receipt) if not name.startswith("_") and name != "msg_id"]
        values = {name: getattr(result, name) for name in names}
        values["offset_msg_id"] = values["offset_msg_id"][16:]  # in front is the port of the broker
        return type(result), values, repr(result).replace(result.msg_id, "")
    text = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", str(result))
    return type(result), re.sub(r"\d+(\.\d+)?( ?ms|\]ms)", "N ms", text)
