"""Load as users make it: sends that are due at fixed times, whatever happened to earlier ones (open loop).

Lives here: ``Load`` (when sends are due), ``Options`` of the producer, ``run_load``; reading a topic to its end.

The load runs in the command's own loop: one process less on two cores, and the latencies include the client's part.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from pocketmq.cli.exit_codes import CannotStart
from pocketmq.cli.scenario.knobs import Knobs
from pocketmq.cli.scenario.report.report import Send
from pocketmq.client import Message, Producer, PullConsumer
from pocketmq.client.admin.admin import Admin
from pocketmq.client.connection.instance import ClientInstance
from pocketmq.client.errors import SendFailed, SendTimeout
from pocketmq.common.errors import PocketMQError
from pocketmq.common.events import EventLog
from pocketmq.remoting.codes import ResponseCode

BODY_BYTES: Final = 100
GROUP: Final = "scenario"
READ_S_MAX: Final = 20.0
clock_s: Final = time.perf_counter
"""uvloop's own clock moves in steps of 1 ms."""


@dataclass(frozen=True, slots=True)
class Load:
    """``burst`` sends at once, then ``rate`` a second for ``seconds``."""

    burst: int = 0
    rate: float = 0.0
    seconds: float = 0.0
    body_bytes: int = BODY_BYTES

    @classmethod
    def chosen(cls, knobs: Knobs, *, burst: int = 0, rate: float, seconds: float) -> Self:
        """Return a load of a scenario's own numbers with those that the reader chose."""
        return cls(
            knobs.get("burst", burst),
            knobs.get("rate", rate),
            knobs.get("seconds", seconds),
            knobs.get("body_bytes", BODY_BYTES),
        )

    def due_s(self) -> list[float]:
        """Return when each send is due, from the start of the load."""
        return [0.0] * self.burst + [number / self.rate for number in range(1, int(self.rate * self.seconds) + 1)]

    def __str__(self) -> str:
        parts = [f"{self.burst:,} sends at once"] if self.burst else []
        if self.rate and self.seconds:
            parts.append(f"{self.rate:g} a second for {self.seconds:g} s")
        return ", then ".join(parts)


@dataclass(frozen=True, slots=True)
class Options:
    """The producer settings of a phase."""

    timeout_ms: int = 3000
    retry_times: int = 0
    retry_response_codes: frozenset[int] | None = None
    """None: the producer's default."""
    added_codes: tuple[int, ...] = ()
    more: dict[str, Any] = field(default_factory=dict)
    """Further keywords of ``Producer``."""

    def words(self) -> dict[str, str]:
        """Return the settings for the report."""
        words = {
            "producer.send_msg_timeout_ms": str(self.timeout_ms),
            "producer.retry_times_when_send_failed": str(self.retry_times),
        }
        if self.retry_response_codes is not None:
            words["producer.retry_response_codes"] = " ".join(map(str, sorted(self.retry_response_codes)))
        if self.added_codes:
            words["producer.add_retry_response_code"] = " ".join(map(str, self.added_codes))
        return words | {f"producer.{name}": str(value) for name, value in self.more.items()}

    def producer(self, namesrv: str, log: EventLog | None = None) -> Producer:
        """Return a producer with these settings, not started. ``log`` takes its events."""
        producer = Producer(
            GROUP,
            instance=ClientInstance(namesrv, log=log),
            send_msg_timeout_ms=self.timeout_ms,
            retry_times_when_send_failed=self.retry_times,
            retry_response_codes=self.retry_response_codes,
            **self.more,
        )
        for code in self.added_codes:
            producer.add_retry_response_code(code)
        return producer


async def create_topic(namesrv: str, topic: str, brokers: Sequence[str], queues: int = 4) -> None:
    """Create a topic on each broker and return when the name server knows it."""
    async with Admin(namesrv=namesrv) as admin:
        for broker in brokers:
            await admin.create_topic(topic, broker=broker, queues=queues)


async def warm_up(producer: Producer, topic: str, brokers: int) -> int:
    """Send until every broker has taken a message: routes, connections and the first segment then exist. Return the
    number of messages.
    """
    seen: set[str] = set()
    count = 0
    while len(seen) < brokers:
        if count == 100 * brokers:
            raise CannotStart("the scenario cannot start", why=f"only these brokers take messages: {sorted(seen)}")
        receipt = await producer.send(Message(topic, b"warm-up"), timeout_ms=10_000)
        seen.add(receipt.broker)
        count += 1
    return count


async def run_load(
    producer: Producer,
    topic: str,
    load: Load,
    at: Sequence[tuple[float, Callable[[], object]]] = (),
    *,
    first_number: int = 0,
) -> list[Send]:
    """Make the sends, one request each, and return their results in the order in which they were due.

    ``at``: (second, action). ``first_number``: the first of the numbers in the bodies. Latency counts from the moment a
    send was due, so that a late client does not hide a late broker (no coordinated omission).
    """
    loop = asyncio.get_running_loop()
    start_s = clock_s()
    handles = [loop.call_later(second, action) for second, action in at]
    tasks: list[asyncio.Task[Send]] = []
    try:
        for number, due_s in enumerate(load.due_s(), first_number):
            wait_s = start_s + due_s - clock_s()
            await asyncio.sleep(max(0.0, wait_s))  # at least one turn of the loop: the previous frame leaves alone
            body = f"{number:09d}".encode().ljust(load.body_bytes, b".")
            tasks.append(loop.create_task(_send(producer, Message(topic, body), start_s, due_s)))
        return await asyncio.gather(*tasks)
    finally:
        for handle in handles:
            handle.cancel()
        for task in tasks:
            task.cancel()


async def _send(producer: Producer, message: Message, start_s: float, due_s: float) -> Send:
    def ended(delivered: bool, text: str, **more: Any) -> Send:
        return Send(due_s, (clock_s() - start_s - due_s) * 1000, delivered, text, body=bytes(message.body), **more)

    try:
        receipt = await producer.send(message)
    except SendFailed as error:
        last = error.attempts[-1]
        code = f"{last.answer_code} {_code_name(last.answer_code)}: " if last.answer_code >= 0 else ""
        if isinstance(error, SendTimeout) and not code:
            code = f"RemotingTooMuchRequestException: {error.what.partition(';')[0]}; "  # as RocketMQ's clients see it
        cause = getattr(last, "cause", None) or error.cause
        return ended(
            False,
            f"{code}{last.answer}",
            cause=str(getattr(cause, "value", cause)),
            stored=error.stored.value,
            attempts=len(error.attempts),
            answered=last.phase == "answer",
        )
    except PocketMQError as error:
        return ended(False, f"{type(error).__name__}: {error.what}", cause=error.cause.value, stored=error.stored.value)
    again = f" (attempt {receipt.attempts})" if receipt.attempts > 1 else ""
    return ended(True, f"{receipt.status.value}{again}", stored="yes", attempts=receipt.attempts)


def _code_name(code: int) -> str:
    try:
        return ResponseCode(code).name
    except ValueError:
        return ""


async def read_topic(namesrv: str, topic: str) -> Counter[bytes]:
    """Return how often each body is in the topic, without the warm-up."""
    found: Counter[bytes] = Counter()
    async with (
        asyncio.timeout(READ_S_MAX),
        PullConsumer(group=f"{GROUP}-{time.time_ns()}", namesrv=namesrv) as consumer,
    ):
        async for message in consumer.stream(topic, start="earliest", stop_at_end=True):
            found[bytes(message.body)] += 1
    del found[b"warm-up"]
    return found
