"""The facts of RocketMQ's own log lines, 4.9.8 and 5.3.3: the same kinds as those of PocketMQ's events (``facts``).

Lives here: the rules, ``Merged`` (the same fact many times in a second is one row), the words that decide
whether a line is looked at. A rule looks for RocketMQ's words anywhere in the text, since operators change layouts.

RocketMQ's broker logs no refusal: [TIMEOUT_CLEAN_QUEUE] and its kind are in the log of the client that was refused.
So a client's line gives two facts here: the broker's refusal and the client's attempt.
"""

import re
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Final

from pocketmq.common.errors import Cause
from pocketmq.pipeline.jobs.flow_control.facts import TAGS, Fact, cut_text
from pocketmq.pipeline.jobs.flow_control.rocketmq.client_facts import (
    ANSWER,
    EXCEPTIONS,
    ended_send,
    failed_send,
    failed_wait,
)
from pocketmq.pipeline.jobs.flow_control.rocketmq.lines import Entry
from pocketmq.pipeline.jobs.flow_control.rocketmq.said import BROKER, NUMBER, Rule, Said, decoded, ms_in, name_in

KINDS_MAX: Final = 512
"""Kinds of facts within a second that are merged at a time: names come from the log."""
SHAPE_BYTES_MAX: Final = 4096
DIGITS: Final = b"0123456789"
CALM_BYTES: Final = 1 << 20
"""A slave or the dispatch less behind than this is not worth a row each minute."""


_FIELDS: Final = tuple(field.name for field in fields(Said))
_COUNTED: Final = frozenset(("event", "other", "broker", "attempt", "refusal", "hold", "slow"))
"""Kinds of facts of which an equal line adds its count and the ms it names."""

_BOOT: Final = re.compile(rb"The broker\[([^,\]\s]{1,127})(?:, [^\]]{0,80})?\] boot success")
_TOOK: Final = re.compile(rb"(?:RT: |cost \[|cost=|\(ms\)\s?=?|costs? |elapsed )(\d{1,12})")
_BUCKET: Final = re.compile(rb"\[([^\]]{2,12})\]:(\d{1,15})")
_TOTAL_PUT: Final = re.compile(rb"TotalPut (\d{1,15})")
_WATERMARK: Final = re.compile(rb"\[WATERMARK\] (\w+) Queue Size: (\d{1,12}) SlowTimeMills: (\d{1,15})")
BUCKETS_MS: Final = {
    b"<=0ms": 1,
    b"0~10ms": 10,
    b"10~50ms": 50,
    b"50~100ms": 100,
    b"100~200ms": 200,
    b"200~500ms": 500,
    b"500ms~1s": 1000,
    b"1~2s": 2000,
    b"2~3s": 3000,
    b"3~4s": 4000,
    b"4~5s": 5000,
    b"5~10s": 10_000,
    b"10s~": 10_000,
}
"""Upper ends of the ranges in [PAGECACHERT] (StoreStatsService), in ms; of the last range its lower end."""
_SLAVE_THREADS: Final = (b"HAClient", b"DefaultHAClient", b"AutoSwitchHAClient")
_DISK_FULL: Final = (
    "No space left on device",
    "There is not enough space on the disk",
    "设备上没有空间",
    "磁盘空间不足",
    "デバイスに空き領域がありません",
    "Auf dem Gerät ist kein Speicherplatz mehr verfügbar",
    "Aucun espace disponible sur le périphérique",
    "No queda espacio en el dispositivo",
    "На устройстве не осталось свободного места",
)
_READ_ONLY: Final = (
    "Read-only file system",
    "只读文件系统",
    "読み込み専用ファイルシステムです",
    "Das Dateisystem ist nur lesbar",
    "Système de fichiers accessible en lecture seulement",
    "Sistema de archivos de solo lectura",
    "Файловая система доступна только для чтения",
)
"""What Java's IOException says is the C library's text, in the language of the process."""


def _encoded(texts: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple({each.encode(name, "ignore") for each in texts for name in ("utf-8", "gb18030") if each})


DISK_FULL: Final = _encoded(_DISK_FULL)
READ_ONLY: Final = _encoded(_READ_ONLY)


def _event(name: str) -> Rule:
    def rule(entry: Entry, text: bytes) -> Iterator[Said]:
        yield Said("event", name)

    return rule


def _lock(name: str) -> Rule:
    def rule(entry: Entry, text: bytes) -> Iterator[Said]:
        match = BROKER.search(text)
        broker = name_in(match[1]) if match else ""
        if broker and not entry.client_5 and entry.thread != b"RocketmqClient":
            yield Said("broker", broker)
        yield Said("event", name, target=broker)

    return rule


def _boot(entry: Entry, text: bytes) -> Iterator[Said]:
    match = _BOOT.search(text)
    if match and (broker := name_in(match[1])):
        yield Said("broker", broker)


def _watermark(entry: Entry, text: bytes) -> Iterator[Said]:
    match = _WATERMARK.search(text)
    if match and match[1] in (b"Send", b"Pull", b"Query", b"Transaction"):
        queue, size, wait_ms = match[1].decode().lower(), int(match[2]), int(match[3])
        if size or wait_ms:
            yield Said("gauge", f"{queue}_queue_size", value=float(size))
            yield Said("gauge", f"{queue}_head_wait_ms", value=float(wait_ms))


def _lost_master(entry: Entry, text: bytes) -> Iterator[Said]:
    if b"master null" not in text:  # before the name server has named it
        yield Said("event", "slave_lost_master")


def _hold(entry: Entry, text: bytes) -> Iterator[Said]:
    yield Said("hold", "ended", value=ms_in(text))


def _put(entry: Entry, text: bytes) -> Iterator[Said]:
    """A slow put is logged by the thread that ended its last wait."""
    stage = "append"
    if entry.thread.startswith((b"GroupTransfer", b"HA", b"ReadSocket", b"AutoSwitch", b"DefaultHA")):
        stage = "replica_wait"
        yield Said("event", "replica_wait_long")
    elif entry.thread.startswith((b"GroupCommit", b"FlushDiskWatcher", b"FlushRealTime")):
        stage = "flush_wait"
    yield Said("slow", stage, value=ms_in(text))


def _sync(entry: Entry, text: bytes) -> Iterator[Said]:
    took_ms = ms_in(text)
    yield Said("stage", "sync", value=took_ms, p50=took_ms, p99=took_ms)


def _put_times(entry: Entry, text: bytes) -> Iterator[Said]:
    """[PAGECACHERT]: how many puts of the last minute took how long, without the waits for sync and slaves."""
    counts = [(BUCKETS_MS[name], int(count)) for name, count in _BUCKET.findall(text) if name in BUCKETS_MS]
    total = sum(count for _, count in counts)
    if not total:
        return
    p50, p99 = (_percentile(counts, total * share) for share in (0.5, 0.99))
    longest = max(ms for ms, count in counts if count)
    yield Said("stage", "append", count=total, for_ms=60_000, value=float(longest), p50=p50, p99=p99)
    put = _TOTAL_PUT.search(text)
    yield Said("sum", "put_count", count=int(put[1]) if put else total, for_ms=60_000)


def _percentile(counts: list[tuple[int, int]], rank: float) -> float:
    seen = 0
    for ms, count in counts:
        seen += count
        if seen >= rank:
            return float(ms)
    return float(counts[-1][0])


def _behind(name: str) -> Rule:
    def rule(entry: Entry, text: bytes) -> Iterator[Said]:
        match = NUMBER.search(text, max(text.find(b"fall behind"), 0))
        if match and int(match[1]) >= CALM_BYTES:
            yield Said("gauge", name, value=float(match[1]))

    return rule


def _disk(entry: Entry, text: bytes) -> Iterator[Said]:
    every = b"\n".join((text, *entry.extras))
    if any(words in every for words in DISK_FULL):
        yield Said("event", "disk_full")
    yield Said("event", "slave_disk_failed" if entry.thread.startswith(_SLAVE_THREADS) else "append_failed")


def _too_many(entry: Entry, text: bytes) -> Iterator[Said]:
    yield Said("event", "thread_pool_busy")
    yield Said("refusal", "line", cause=Cause.QUEUE_FULL.value, tag="OVERLOAD", code=2)


QUIET_RULES: Final[tuple[tuple[bytes, Rule], ...]] = (
    (b"boot success", _boot),
    (b"[WATERMARK]", _watermark),
    (b"PAGECACHERT]", _put_times),
    (b"lock expired, I got it", _lock("queue_lock_expired")),
    (b"to lock a expired message queue", _lock("queue_lock_expired")),
    (b"locked by other client", _lock("queue_lock_refused")),
    (b"the message queue locked Failed", _lock("queue_waits_for_lock")),
    (b"Commit data to file costs", _event("commit_slow")),
    (b"lave fall behind master", _behind("slave_behind_bytes_max")),
    (b"fall behind commit log", _behind("dispatch_behind_bytes")),
    (b"HAService receive new connection", _event("slave_connected")),
    (b"channel from ConsumerGroupInfo", _event("consumer_disconnected")),
    (b"physic disk maybe full soon", _event("disk_full")),
    (b"disk of commitLog maybe full soon", _event("disk_full")),
)  # fmt: skip
"""Words of lines that matter at any level, info included, and their rules."""
LOUD_RULES: Final[tuple[tuple[bytes, Rule], ...]] = (
    *QUIET_RULES,
    (b"in lock cost time(ms)", _hold),
    (b"not in lock elapsed time(ms)", _put),
    (b"CommitLog#putMessage cost", _put),
    (b"Flush data to disk costs", _sync),
    (b"TransientStorePool only remain", _event("transient_store_pool_low")),
    (b"TransientStorePool is not enough", _event("transient_store_pool_low")),
    (b"create mmap timeout", _event("create_mapped_file_timeout")),
    (b"reate mapped file1 error", _event("create_mapped_file_failed")),
    (b"reate mapped file2 error", _event("create_mapped_file_failed")),
    (b"create mappedFile exception", _disk),
    (b"Failed to create file", _disk),
    (b"Failed to map file", _disk),
    (b"when append message to mappedFile", _disk),
    (b"when force data to disk", _disk),
    (b"when commit data to FileChannel", _event("commit_failed")),
    (b"to slave timeout", _event("flush_slave_timeout")),
    (b"do sync transfer other node", _event("flush_slave_timeout")),
    (b"wait for flush failed", _event("flush_disk_timeout")),
    (b"too many requests and system thread pool busy", _too_many),
    (b"ha housekeeping, found this connection", _event("slave_disconnected")),
    (b"processReadEvent read socket", _event("slave_lost_master")),
    (b"HAClient, housekeeping", _event("slave_lost_master")),
    (b"HAClient connect to master", _lost_master),
    (b"processReadEvent error", _event("slave_disconnected")),
    (b"read socket[", _event("slave_disconnected")),
    (b"disk maybe full soon", _event("disk_full")),
    (b"message store is not writ", _event("disk_full")),
    (b"sendKernelImpl exception", failed_send),
    (b"not locked, so consume later", _lock("queue_waits_for_lock")),
    (b"lock expired, so consume later", _lock("queue_waits_for_lock")),
    (b"not locked in broker", _lock("queue_waits_for_lock")),
    (b"because lock failed", _lock("queue_waits_for_lock")),
)
"""Words of warnings and errors, tried in this order."""
TRACE_RULES: Final[tuple[tuple[bytes, Rule], ...]] = (
    *((words, _disk) for words in (*DISK_FULL, *READ_ONLY)),
    (b"still failed, cost [", ended_send),
    (b"sendDefaultImpl call timeout", ended_send),
    (b"DEFAULT ASYNC send call timeout", ended_send),
    (b"sendSelectImpl call timeout", ended_send),
    *((b"[%s]" % tag.encode(), ended_send) for tag in sorted(TAGS)),
    (b"MQBrokerException", ended_send),
    (b"RemotingTimeoutException", failed_wait),
)
"""Words that matter in stack traces, and in lines of applications."""
NOISE: Final = (
    b"wait response timeout exception",
    b"send request exception, so close",
    b"close socket because of timeout",
    b"RemotingCommand [",
    b"Message{topic=",
)
"""Warnings that only repeat another line of RocketMQ."""
QUIET_WORDS: Final = tuple(words for words, _ in QUIET_RULES)
LOUD_WORDS: Final = (*EXCEPTIONS, *QUIET_WORDS, *(words for words, _ in (*LOUD_RULES, *TRACE_RULES)))


def _rule_of(loud: bool, text: bytes, every: bytes) -> Rule | None:
    """Return the rule for an entry, None if it says nothing; ``every``: its text and the lines below it. Entries that
    differ in digits only have the same rule, since no two rules differ in digits only.
    """
    for words, rule in LOUD_RULES if loud else QUIET_RULES:
        if words in text:
            return rule
    for words in NOISE:
        if words in text:
            return None
    for words, rule in TRACE_RULES:
        if words in every:
            return rule
    return _other if loud else None


def _other(entry: Entry, text: bytes) -> Iterator[Said]:
    yield Said("other", "warnings and errors")


class Merged:
    """Facts of one second of one file, equal ones as one row: a log can hold the same line a thousand times.

    Entries that differ in digits only are looked at once a second, unless digits are all that they say.
    """

    def __init__(self) -> None:
        self._second = -1
        self._kept: dict[tuple[object, ...], tuple[Entry, Said]] = {}
        self._shapes: dict[tuple[bytes, bytes], list[tuple[Said, int, int, int]]] = {}
        self._rules: dict[tuple[bool, bytes], Rule | None] = {}
        """Of texts without their digits, from one second to the next."""

    def add(self, entry: Entry) -> Iterator[tuple[int, int, Fact]]:
        """Add the facts of an entry; yield (line, ms, fact) of those that are complete."""
        if entry.at_ms // 1000 != self._second or len(self._shapes) >= KINDS_MAX:
            yield from self.end()
            self._second = entry.at_ms // 1000
        every = b"\n".join((entry.text, *entry.extras)) if entry.extras else entry.text
        at = every.find(b"brokerName=")
        shape = (every.translate(None, DIGITS), every[at : every.find(b",", at)] if at >= 0 else b"")
        repeated = self._shapes.get(shape)
        if repeated is None:
            rule = self._rule(entry, every, shape[0])
            made = [] if rule is None else [(self._keep(entry, said), said) for said in rule(entry, entry.text)]
            if all(said.kind in _COUNTED for _, said in made) and len(every) <= SHAPE_BYTES_MAX:
                self._shapes[shape] = [(kept, said.count, said.again, said.ended) for kept, said in made]
            return
        for kept, count, again, ended in repeated:
            kept.count += count
            kept.again += again
            kept.ended += ended
            if kept.value:
                took = _TOOK.search(entry.text)
                kept.value = max(kept.value, float(took[1]) if took else 0.0)

    def _rule(self, entry: Entry, every: bytes, shape: bytes) -> Rule | None:
        key = entry.loud, shape
        if key in self._rules:
            return self._rules[key]
        if len(self._rules) >= KINDS_MAX:
            self._rules.clear()
        rule = _rule_of(entry.loud, entry.text, every)
        if len(shape) <= SHAPE_BYTES_MAX:
            self._rules[key] = rule
        return rule

    def _keep(self, entry: Entry, said: Said) -> Said:
        """Add a fact to those of its kind; return the one that counts."""
        key = (said.kind, said.name, said.target, said.cause, said.tag, said.code)
        if key not in self._kept:
            self._kept[key] = (entry, replace(said))
            return self._kept[key][1]
        kept = self._kept[key][1]
        kept.count += said.count
        kept.again += said.again
        kept.ended += said.ended
        kept.value = max(kept.value, said.value)
        kept.p50, kept.p99 = max(kept.p50, said.p50), max(kept.p99, said.p99)
        return kept

    def end(self) -> Iterator[tuple[int, int, Fact]]:
        """Yield the rest."""
        kept, self._kept, self._shapes = self._kept, {}, {}
        for entry, said in kept.values():
            fields = {name: getattr(said, name) for name in _FIELDS}
            yield entry.line, entry.at_ms, Fact(**fields, text=_text(entry, said))


def _text(entry: Entry, said: Said) -> str:
    """Return what is cited of an entry: the reason for a failed send, else its text."""
    if said.kind in ("stage", "gauge", "sum", "broker"):
        return ""
    shown = entry.text
    if said.kind in ("attempt", "refusal"):
        lines = (entry.text, *entry.extras)
        shown = next((line for line in lines if any(words in line for words in EXCEPTIONS)), shown)
        answer = ANSWER.search(shown)
        shown = answer[2] if answer is not None else shown
    elif entry.extras and said.kind in ("event", "other"):
        shown = shown + b" | " + entry.extras[-1]
    return cut_text(decoded(shown[:1600]))
