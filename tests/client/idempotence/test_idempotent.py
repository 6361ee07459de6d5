"""Handlers that skip duplicates, and failures between claim and end."""

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from pocketmq.client.handlers.consume_result import ConsumeResult, Later
from pocketmq.client.handlers.handler_call import HandlerCall
from pocketmq.client.idempotence import Idempotent, MarkStore, MarkStoreUnavailable, MemoryStore
from pocketmq.client.idempotence.counts import CountsCollector
from pocketmq.client.idempotence.redis_store import RedisStore
from pocketmq.client.idempotence.store import Claim
from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import ConfigError
from pocketmq.common.events import NullLog
from pocketmq.common.logs import CapturedLog
from pocketmq.common.message import ReceivedMessage
from pocketmq.common.redelivery import RESENT_FROM
from tests.client.idempotence.conftest import message_of

EACH = pytest.mark.parametrize("store", ["memory", "sqlite", "rocksdb", "redis"], indirect=True)


@EACH
async def test_a_duplicate_reaches_the_handler_once(store: MarkStore) -> None:
    """The second one is done before the handler is called; the handler's result is passed on."""
    idempotent = Idempotent(store, scope="s")
    seen: list[bytes] = []

    @idempotent
    async def handle(message: ReceivedMessage) -> ConsumeResult:
        seen.append(message.body)
        return ConsumeResult.SUCCESS

    assert await handle(message_of(b"1", "U1")) is ConsumeResult.SUCCESS
    assert await handle(message_of(b"again", "U1")) is None
    assert await handle(message_of(b"2", "U2")) is ConsumeResult.SUCCESS
    assert seen == [b"1", b"2"]
    assert (idempotent.counts.first, idempotent.counts.done, idempotent.counts.skipped) == (2, 2, 1)


@EACH
async def test_a_handler_that_fails_gets_the_message_again(store: MarkStore) -> None:
    """It raises, or asks for later: the claim is released, so that the retry runs; then it is done."""
    idempotent = Idempotent(store, scope="s")
    answers: list[Any] = [ValueError("boom"), ConsumeResult.LATER, Later(delay_level=4), False, True]

    @idempotent
    async def handle(message: ReceivedMessage) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    message = message_of()
    with pytest.raises(ValueError, match="boom"):
        await handle(message)
    assert await handle(message) is ConsumeResult.LATER
    assert await handle(message) == Later(delay_level=4)
    assert await handle(message) is False
    assert await handle(message) is True
    assert await handle(message) is None
    assert (answers, idempotent.counts.failed, idempotent.counts.skipped) == ([], 4, 1)


@EACH
async def test_of_two_that_race_one_runs_and_the_other_comes_later(store: MarkStore) -> None:
    """While one instance works, the other puts its copy off; the retry finds it done."""
    here, there = Idempotent(store, scope="s"), Idempotent(store, scope="s")
    entered, go_on = asyncio.Event(), asyncio.Event()
    runs: list[str] = []

    @here
    async def first(message: ReceivedMessage) -> None:
        runs.append("first")
        entered.set()
        await go_on.wait()

    @there
    async def second(message: ReceivedMessage) -> None:
        runs.append("second")

    message = message_of()
    running = asyncio.create_task(first(message))
    await entered.wait()
    assert await second(message) == Later()
    go_on.set()
    await running
    assert await second(message) is None
    assert (runs, there.counts.busy, there.counts.skipped) == (["first"], 1, 1)


async def test_a_plain_handler_runs_in_a_thread(tmp_path: Path) -> None:
    """The event loop stays free, and the handler's name stays visible."""
    threads: set[int] = set()
    async with Idempotent("memory:") as idempotent:

        @idempotent
        def handle(message: ReceivedMessage) -> None:
            threads.add(threading.get_ident())

        await handle(message_of(b"x", "U1"))
        await handle(message_of(b"x", "U1"))
    assert threads
    assert threading.get_ident() not in threads
    unused: Any = None
    assert HandlerCall(handle, log=NullLog(), threads=unused).name.endswith("handle")


async def test_a_batch_holds_back_what_is_done() -> None:
    """The handler gets the rest, and twins once; unfinished and busy messages are retried."""
    store = MemoryStore()
    idempotent = Idempotent(store, scope="s")
    batches: list[list[bytes]] = []
    messages = [message_of(b"%d" % number, f"U{number}") for number in range(6)]

    @idempotent
    async def handle(batch: list[ReceivedMessage]) -> Any:
        batches.append([message.body for message in batch])
        unfinished = [message for message in batch if message.body == b"3"]
        return Later(delay_level=7, messages=unfinished) if unfinished else None

    assert await handle(messages[:2]) is None
    twin = message_of(b"twin", "U2")
    again = await handle([*messages[1:4], twin])
    assert (again.delay_level, [message.body for message in again.messages]) == (7, [b"3"])
    await store.claim([f"s:{messages[4].msg_id}"], "somebody", idempotent.clock.now_ms(), 60_000, 60_000)
    again = await handle(messages[3:])
    assert (again.delay_level, {message.body for message in again.messages}) == (0, {b"3", b"4"})
    assert batches == [[b"0", b"1"], [b"2", b"3"], [b"3", b"5"]]
    assert await handle([messages[0], messages[5]]) is None
    assert len(batches) == 3


async def test_a_key_function_decides_what_is_the_same() -> None:
    """By order number, for instance; scopes are independent; long keys are shortened; a missing key is an error."""
    store = MemoryStore()
    seen: list[bytes] = []

    def order(message: ReceivedMessage) -> str:
        return message.body.decode().split(":")[0]

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)

    billing = Idempotent(store, scope="billing", key=order)(handle)
    stock = Idempotent(store, scope="stock", key=order)(handle)
    await billing(message_of(b"o1:first"))
    await billing(message_of(b"o1:second"))
    await stock(message_of(b"o1:third"))
    assert seen == [b"o1:first", b"o1:third"]
    await billing(message_of(b"a" * 1000 + b"b"))
    await billing(message_of(b"a" * 1000 + b"c"))
    assert len(seen) == 4
    assert max(map(len, store._done)) <= 200
    with pytest.raises(ConfigError, match="key function"):
        await billing(message_of(b""))


async def lost_owner(store: MarkStore, clock: ManualClock) -> None:
    """Leave the claim of a process that died in its handler."""
    await store.claim(["s:U1"], "dead", clock.now_ms(), 1000, 10_000)
    clock.advance_ms(1001)


async def test_an_effect_that_is_not_known_runs_again_or_goes_to_a_person() -> None:
    """After a death between claim and end the handler runs; a setting may choose dead letters or the user's check."""
    clock, log = ManualClock(), CapturedLog()
    for decision, expected, runs in (
        ("run", None, 1),
        ("dead_letter", -1, 0),
        (lambda message: True, None, 0),
        (lambda message: False, None, 1),
    ):
        store = MemoryStore()
        idempotent = Idempotent(store, scope="s", unknown_effect=decision, clock=clock, log=log)
        seen: list[bytes] = []

        @idempotent
        async def handle(message: ReceivedMessage, seen: list[bytes] = seen) -> None:
            seen.append(message.body)

        await lost_owner(store, clock)
        answer = await handle(message_of(b"x", "U1"))
        assert (None if answer is None else answer.delay_level, len(seen)) == (expected, runs)
        assert idempotent.counts.taken_over == 1
        resent = message_of(b"resent", "U1")
        resent.properties[RESENT_FROM] = "where the dead letter is"
        clock.advance_ms(60_001)
        assert await handle(resent) is None
        assert len(seen) == (runs if expected is None else 1)
    assert log.of("effect_unknown")


async def test_what_could_not_become_a_dead_letter_is_not_run_instead() -> None:
    """The send-back failed: the same message is consumed here again, and its effect is still unknown."""
    clock, store = ManualClock(), MemoryStore()
    idempotent = Idempotent(store, scope="s", unknown_effect="dead_letter", clock=clock, lease_ms=1000)

    @idempotent
    async def handle(message: ReceivedMessage) -> None:
        raise AssertionError("must not run")

    await lost_owner(store, clock)
    message = message_of(b"x", "U1")
    assert (await handle(message)).delay_level == -1
    assert await handle(message) == Later()
    clock.advance_ms(1001)
    assert (await handle(message)).delay_level == -1


async def test_a_question_about_an_effect_that_fails_is_asked_again() -> None:
    """The handler does not run instead; messages claimed with it are free again."""
    clock, store = ManualClock(), MemoryStore()
    answers: list[Any] = [OSError("no answer"), True]
    seen: list[bytes] = []

    def happened(message: ReceivedMessage) -> bool:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)

    idempotent = Idempotent(store, scope="s", unknown_effect=happened, clock=clock, lease_ms=1000)

    @idempotent
    async def handle(batch: list[ReceivedMessage]) -> None:
        seen.extend(message.body for message in batch)

    await lost_owner(store, clock)
    unknown = message_of(b"unknown", "U1")
    with pytest.raises(OSError, match="no answer"):
        await handle([message_of(b"before", "U0"), unknown, message_of(b"after", "U2")])
    await handle([message_of(b"before", "U0")])
    await handle([message_of(b"after", "U2")])
    clock.advance_ms(1001)
    await handle([unknown])
    assert (seen, answers) == ([b"before", b"after"], [])


async def test_a_call_that_is_canceled_while_it_claims_leaves_no_claim() -> None:
    """No handler has begun: the message must not count as one whose effect is unknown."""
    began = asyncio.Event()

    class Slow(MemoryStore):
        async def claim(self, *arguments: Any) -> Any:
            claims = await super().claim(*arguments)
            began.set()
            await asyncio.sleep(60)
            return claims

    store = Slow()
    idempotent = Idempotent(store, scope="s")

    @idempotent
    async def handle(message: ReceivedMessage) -> None:
        raise AssertionError("must not run")

    call = asyncio.get_running_loop().create_task(handle(message_of(b"x", "U1")))
    await began.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert len(store) == 0


@pytest.mark.parametrize("store", ["redis"], indirect=True)
async def test_a_handler_may_run_for_longer_than_the_window(store: MarkStore) -> None:
    """The server removes done marks after the window; a renewed claim is not one of them."""
    assert isinstance(store, RedisStore)
    assert await store.claim(["k"], "one", 0, 10_000, 1) == [Claim.NEW]
    assert await store._client.pttl(f"{store._prefix}k") <= 20_000
    await store.renew(["k"], "one", 0, 600_000)
    assert await store._client.pttl(f"{store._prefix}k") > 300_000
    assert await store.claim(["k"], "two", 0, 100, 1) == [Claim.BUSY]


async def test_a_plain_handler_outlives_the_cancellation_of_its_call() -> None:
    """A thread cannot be canceled: no other handler gets the message while it runs, and it is done when the thread
    is."""
    store, began, end = MemoryStore(), threading.Event(), threading.Event()
    seen: list[bytes] = []
    idempotent = Idempotent(store, scope="s")

    @idempotent
    def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)
        began.set()
        end.wait(60)

    call = asyncio.get_running_loop().create_task(handle(message_of(b"x", "U1")))
    await asyncio.to_thread(began.wait)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    try:
        assert await handle(message_of(b"again", "U1")) == Later()
    finally:
        end.set()
    await idempotent.close()
    assert await handle(message_of(b"again", "U1")) is None
    assert seen == [b"x"]


async def test_a_plain_handler_that_raises_stop_iteration_comes_to_an_end() -> None:
    """A future cannot carry it, and would wait for ever."""
    idempotent = Idempotent(MemoryStore(), scope="s")

    @idempotent
    def handle(message: ReceivedMessage) -> None:
        next(iter(()))

    async with asyncio.timeout(60):
        with pytest.raises(RuntimeError, match="StopIteration"):
            await handle(message_of(b"x", "U1"))


async def test_a_dead_letter_in_a_batch_waits_for_a_batch_of_its_own() -> None:
    """One answer has one level; a message that must not run does not run meanwhile."""
    clock, store = ManualClock(), MemoryStore()
    idempotent = Idempotent(store, scope="s", unknown_effect="dead_letter", clock=clock, lease_ms=1000)
    seen: list[bytes] = []

    @idempotent
    async def handle(batch: list[ReceivedMessage]) -> Any:
        seen.extend(message.body for message in batch)
        return ConsumeResult.LATER

    await lost_owner(store, clock)
    unknown, other = message_of(b"unknown", "U1"), message_of(b"other", "U2")
    answer = await handle([unknown, other])
    assert (answer.delay_level, {message.body for message in answer.messages}) == (0, {b"unknown", b"other"})
    answer = await handle([unknown])
    assert answer == Later()
    clock.advance_ms(1001)
    answer = await handle([unknown])
    assert (answer.delay_level, seen) == (-1, [b"other"])


class FailingStore(MemoryStore):
    """Memory that fails on demand: ``failing`` names the methods, with how often."""

    def __init__(self) -> None:
        super().__init__()
        self.failing: dict[str, int] = {}

    def _check(self, name: str) -> None:
        if self.failing.get(name, 0) > 0:
            self.failing[name] -= 1
            raise MarkStoreUnavailable(f"{name} failed", why="the test wants it")

    async def claim(self, *arguments: Any) -> Any:
        self._check("claim")
        return await super().claim(*arguments)

    async def finish(self, *arguments: Any) -> Any:
        self._check("finish")
        return await super().finish(*arguments)

    async def release(self, *arguments: Any) -> None:
        self._check("release")
        await super().release(*arguments)


async def test_a_store_that_fails_costs_no_message_and_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a claim the message is put off, unhandled; an end that fails is retried, then logged and counted."""
    monkeypatch.setattr("pocketmq.client.idempotence.idempotent.FINISH_PAUSE_S", 0.0)
    store, log = FailingStore(), CapturedLog()
    idempotent = Idempotent(store, scope="s", log=log)
    runs: list[int] = []

    @idempotent
    async def handle(message: ReceivedMessage) -> None:
        runs.append(1)
        if message.body == b"bad":
            raise ValueError("bad")

    message = message_of()
    store.failing["claim"] = 1
    with pytest.raises(MarkStoreUnavailable):
        await handle(message)
    assert runs == []
    store.failing["finish"] = 2
    assert await handle(message) is None
    assert await handle(message) is None
    assert (len(runs), idempotent.counts.unmarked, idempotent.counts.skipped) == (1, 0, 1)
    store.failing["finish"] = 3
    assert await handle(message_of()) is None
    assert (idempotent.counts.unmarked, log.of("done_not_marked")[0]["messages"]) == (1, 1)
    store.failing["release"] = 1
    with pytest.raises(ValueError, match="bad"):
        await handle(message_of(b"bad"))
    assert log.of("claim_not_given_up")
    registry = CollectorRegistry()
    registry.register(CountsCollector("s", idempotent.counts))
    text = generate_latest(registry).decode()
    assert 'pocketmq_idempotent_messages_total{outcome="unmarked",scope="s"} 1.0' in text


async def test_a_long_handler_keeps_its_lease_and_a_lost_one_is_reported() -> None:
    """The lease is renewed at each third of it; an owner that lost it nevertheless reports that."""
    store, log, clock = MemoryStore(), CapturedLog(), ManualClock()
    idempotent = Idempotent(store, scope="s", lease_ms=60, log=log, clock=clock)
    go_on = asyncio.Event()

    @idempotent
    async def handle(message: ReceivedMessage) -> None:
        await go_on.wait()

    running = asyncio.create_task(handle(message_of(b"x", "U1")))
    for _ in range(8):
        async with asyncio.timeout(60):
            while store._running.get("s:U1", ("", 0))[1] != clock.now_ms() + 60:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        clock.advance_ms(59)
        assert (await store.claim(["s:U1"], "other", clock.now_ms(), 1, 1))[0].name == "BUSY"
    store._running["s:U1"] = ("thief", 1 << 60)
    go_on.set()
    await running
    assert idempotent.counts.lease_lost == 1
    assert log.of("lease_lost")[0]["messages"] == 1


async def test_a_handler_that_is_cancelled_gives_its_claim_up() -> None:
    """A consumer that stops halfway leaves no claim behind."""
    store = MemoryStore()
    idempotent = Idempotent(store, scope="s")
    entered = asyncio.Event()

    @idempotent
    async def handle(message: ReceivedMessage) -> None:
        entered.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(handle(message_of()))
    await entered.wait()
    assert len(store) == 1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert (len(store), idempotent.counts.failed) == (0, 1)


CHILD = """
import asyncio, os, sys
from pocketmq.client.idempotence import Idempotent
from tests.client.idempotence.conftest import message_of

async def main():
    idempotent = Idempotent(sys.argv[1], scope="s", lease_ms=400)
    @idempotent
    async def handle(message):
        print("effect", flush=True)
        await asyncio.sleep(60)
    await handle(message_of(b"x", "U1"))

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "rocksdb", "redis"])
async def test_a_process_that_is_killed_in_its_handler(kind: str, tmp_path: Path, request: Any) -> None:
    """Its message is busy until the lease ends; then the effect counts as unknown, and the setting decides."""
    text = {"sqlite": f"sqlite:///{tmp_path}/m.db", "rocksdb": f"rocksdb://{tmp_path}/r"}.get(kind)
    text = text or request.getfixturevalue("redis_server")
    root = Path(__file__).parents[3]
    process = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", CHILD, text],
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env={"PYTHONPATH": f"{root / 'src'}:{root}"},
    )
    assert process.stdout is not None
    assert await asyncio.to_thread(process.stdout.readline) == "effect\n"
    process.kill()
    await asyncio.to_thread(process.communicate)
    async with Idempotent(text, scope="s", unknown_effect="dead_letter") as idempotent:

        @idempotent
        async def handle(message: ReceivedMessage) -> None:
            raise AssertionError("must not run")

        answer = Later()
        async with asyncio.timeout(60):
            while answer == Later():
                answer = await handle(message_of(b"x", "U1"))
                await asyncio.sleep(0.02)
        assert answer.delay_level == -1
        assert idempotent.counts.taken_over == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"window_ms": 0},
        {"lease_ms": -1},
        {"threads": 1.5},
        {"unknown_effect": "skip"},
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict[str, Any]) -> None:
    """The error has the name of the setting."""
    with pytest.raises(ConfigError, match=next(iter(settings))):
        Idempotent("memory:", **settings)


async def test_a_purge_that_meets_a_fault_of_ours_is_logged_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs beside the handlers, which go on; unlogged, the marks would grow for ever."""
    monkeypatch.setattr("pocketmq.client.idempotence.idempotent.PURGE_EVERY", 1)

    class Faulty(MemoryStore):
        async def purge(self, now_ms: int) -> int:
            raise ZeroDivisionError("ours")

    log = CapturedLog()
    idempotent = Idempotent(Faulty(), scope="s", log=log)

    @idempotent
    async def handle(message: ReceivedMessage) -> bool:
        return True

    assert await handle(message_of(b"1", "U1")) is True
    assert await handle(message_of(b"2", "U2")) is True
    await asyncio.gather(*idempotent._tasks, return_exceptions=True)
    failed = [event for event in log.events if event["event"] == "task_failed"]
    assert failed[0]["task"] == "idempotent-purge"
    assert idempotent.supervisor.failures == {"idempotent-purge": len(failed)}
