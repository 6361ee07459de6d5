"""What must hold when a run is over and the cluster is whole.

Lives here: ``check_everything``, ``missing_for_consumers``.
"""

from collections import Counter
from typing import TYPE_CHECKING

from pocketmq.common.record_codec import Record
from tests.cluster_sim.kernel import NS_PER_MS
from tests.cluster_sim.ledger import Broken, Sent
from tests.store.log_fakes import read_queue

if TYPE_CHECKING:
    from tests.cluster_sim.life import Group, Life

TOPICS = ("plain", "ordered", "delayed", "tx", "staged")
SLACK_NS = 50 * NS_PER_MS
"""Of a delay: what clocks that drift differ by, and the rounding to ms."""


def check_everything(life: "Life") -> None:
    """Raise ``Broken`` for the first broken promise."""
    records = read_all(life)
    check_sends(life, records)
    check_order(life, records)
    check_delays(life)
    check_locks(life)
    check_logs(life)
    check_nodes(life)
    check_damage(life)
    if life.ledger.problems:
        raise Broken(life.ledger.problems[0])


Found = dict[bytes, list[tuple[str, Record]]]


def read_all(life: "Life") -> Found:
    """Return every message in the masters' queues, by body."""
    found: Found = {}
    for group in life.groups:
        store = group.master.app.store
        for topic in TOPICS:
            for queue_id in range(8):
                for record in read_queue(store, topic, queue_id):
                    found.setdefault(bytes(record.body), []).append((group.name, record))
    return found


def check_sends(life: "Life", found: Found) -> None:
    """Acknowledged: there. Once, unless the receipt says otherwise. Refused as not stored: not there."""
    group_of = {group.name: group for group in life.groups}
    for body in found:
        if body not in life.ledger.sent:
            raise Broken(f"{body!r} was never sent")
    for body, sent in life.ledger.sent.items():
        copies = found.get(body, [])
        name = body.rstrip(b".").decode()
        if sent.kind == "transaction":
            check_transaction(name, sent, len(copies))
            continue
        is_still_away = sent.kind == "timer" and sent.place is not None and is_far(life, sent)
        if sent.outcome in ("ok", "yes") and not copies and not is_still_away:
            raise Broken(f"{name} ({sent.kind}) was acknowledged ({sent.outcome}) and is not there: {sent}")
        if sent.outcome == "no" and copies:
            raise Broken(f"{name} ({sent.kind}) was refused as not stored, and is there {len(copies)} times: {sent}")
        if sent.kind == "staged" and len(copies) > 1:
            raise Broken(f"{name} was staged and is there {len(copies)} times: {sent}")
        crashed = any(group_of[broker].crashed for broker, _ in copies)
        repeats = sent.kind in ("level", "timer") and crashed
        if len(copies) > 1 and sent.attempts <= 1 and not sent.may_be_twice and not repeats:
            raise Broken(f"{name} ({sent.kind}) is there {len(copies)} times: {sent}")
        if sent.outcome == "ok" and sent.kind in ("plain", "keyed"):
            places = {(broker, record.topic, record.queue_id, record.queue_offset) for broker, record in copies}
            if sent.place not in places:
                raise Broken(f"{name} was acknowledged at {sent.place} and is at {sorted(places)}")


def check_transaction(name: str, sent: Sent, copies: int) -> None:
    """Committed: there, once. Rolled back, or never begun: not there."""
    if copies > 1:
        raise Broken(f"the transaction {name} was delivered {copies} times: {sent}")
    if sent.committed and not copies:
        raise Broken(f"the transaction {name} was committed and is not there: {sent}")
    if not sent.committed and copies:
        raise Broken(f"the transaction {name} was not committed ({sent.committed}) and is there: {sent}")


def check_order(life: "Life", found: Found) -> None:
    """Acknowledged messages of one key lie in their order in each queue; ordered handlers saw them so at first."""
    keyed: dict[tuple[str, str, int], list[tuple[int, int, bytes]]] = {}
    for body, copies in found.items():
        sent = life.ledger.sent[body]
        if sent.kind != "keyed" or sent.outcome != "ok" or len(copies) > 1:
            continue
        broker, record = copies[0]
        keyed.setdefault((sent.key, broker, record.queue_id), []).append((record.queue_offset, sent.number, body))
    for (key, broker, queue_id), places in keyed.items():
        numbers = [number for _, number, _ in sorted(places)]
        if numbers != sorted(numbers):
            raise Broken(f"the messages of key {key} in {broker}/{queue_id} are out of order: {numbers}")
    for group, queues in life.ledger.offsets.items():
        if group != "ordered":
            continue
        for queue, calls in queues.items():
            highest = -1
            for offset, _, who in calls:
                if offset > highest + 1 and highest >= 0:
                    raise Broken(f"{group}: {who} got {queue} at {offset} after {highest}: it skips messages")
                highest = max(highest, offset)


def missing_for_consumers(life: "Life") -> list[str]:
    """Return what is in the queues, or was acknowledged with a delay, and has not reached a handler."""
    ledger = life.ledger
    return [
        f"{body.rstrip(b'.')!r} for {group}: {ledger.sent[body]}"
        for group, body in due_to_consumers(life)
        if body not in ledger.handled.get(group, {})
    ]


def is_far(life: "Life", sent: Sent) -> bool:
    """Whether a timer was made while the wall clock of its broker was far ahead: it follows that clock."""
    assert sent.place is not None
    group = next(each for each in life.groups if each.name == sent.place[0])
    spans = [span for node in group.nodes for span in node.machine.clock.ahead_ns]
    return any(begun_ns <= sent.ended_ns and sent.begun_ns <= ended_ns for begun_ns, ended_ns in spans)


def due_to_consumers(life: "Life") -> list[tuple[str, bytes]]:
    """Return (group, body) of all that must reach a handler."""
    ledger = life.ledger
    due: list[tuple[str, bytes]] = []
    pulled = [group for group in ledger.handled if group.startswith("pull-")]
    for body, sent in ledger.sent.items():
        is_due = sent.outcome == "ok" and (sent.kind != "transaction" or sent.committed)
        if sent.kind == "transaction" and sent.committed:
            is_due = True
        if not is_due:
            continue
        if sent.kind == "timer" and is_far(life, sent):
            continue
        groups = ["ordered"] if sent.kind == "keyed" else ["push"]
        if sent.kind == "plain":
            groups += pulled
        due += [(group, body) for group in groups]
    return due


def check_delays(life: "Life") -> None:
    """No level is delivered early, where no broker was down meanwhile."""
    for body, sent in life.ledger.sent.items():
        if sent.kind != "level" or sent.place is None:
            continue
        group: Group = next(each for each in life.groups if each.name == sent.place[0])
        ends = [ended_ns for node in group.nodes for ended_ns in node.machine.ended_ns]
        interruptions = [*group.interruptions, *zip(ends, ends, strict=True)]
        for at_ns in life.ledger.handled.get("push", {}).get(body, []):
            if any(sent.begun_ns <= last_ns and first_ns <= at_ns for first_ns, last_ns in interruptions):
                continue
            if at_ns - sent.begun_ns < sent.delay_ns - SLACK_NS:
                early_ms = (sent.delay_ns - (at_ns - sent.begun_ns)) / NS_PER_MS
                raise Broken(f"{body.rstrip(b'.')!r} came {early_ms:.0f} ms early: {sent}")


def check_locks(life: "Life") -> None:
    """No queue had two ordered handlers at once, unless its broker had lost its locks by then, or a process had been
    frozen."""
    for queue, one, other, at_ns in life.ledger.meetings:
        group: Group = next(each for each in life.groups if each.name == queue[0])
        begun = [begun_ns for begun_ns, _ in group.interruptions]
        ended = [ended_ns for node in group.nodes for ended_ns in node.machine.ended_ns]
        if any(since_ns <= at_ns for since_ns in (*begun, *ended, *life.freezes_ns)):
            continue
        raise Broken(f"{one} and {other} both handled {queue} at {at_ns}")


def check_logs(life: "Life") -> None:
    """The logs of a master and its slaves are the same bytes."""
    for group in life.groups:
        logs = [log_of(node) for node in group.nodes]
        for node, log in zip(group.nodes[1:], logs[1:], strict=True):
            start = max(logs[0][0], log[0])
            one, other = logs[0][1][start - logs[0][0] :], log[1][start - log[0] :]
            if one != other:
                at = next((index for index in range(min(len(one), len(other))) if one[index] != other[index]), -1)
                raise Broken(f"the logs of {group.nodes[0].name} and {node.name} differ at {start + at}")


def log_of(node: "object") -> tuple[int, bytes]:
    """Return where a log begins, and its bytes."""
    store = node.app.store  # type: ignore[attr-defined]
    files = node.process.files  # type: ignore[attr-defined]
    image = files.image("/data/store/commitlog")
    segments = sorted((int(path.rpartition("/")[2]), data) for path, data in image.items() if path[-1].isdigit())
    start = segments[0][0] if segments else 0
    return start, b"".join(data for _, data in segments)[: store.log.committed_offset - start]


def check_nodes(life: "Life") -> None:
    """No worker has crashed, no callback has raised."""
    for node in life.nodes:
        process = node.process
        assert process is not None
        if process.crashes:
            raise Broken(f"{node.name}: worker {process.crashes[0]!r}")
        if process.loop.unhandled:
            raise Broken(f"{node.name}: {process.loop.unhandled[0]!r}")


def check_damage(life: "Life") -> None:
    """A kill leaves no damage: what it tore is cut. Only a disk that fails or loses power may leave some."""
    for group in life.groups:
        for node in group.nodes:
            damaged = node.app.store.log.damaged
            if damaged and not group.disk_failed:
                raise Broken(f"{node.name} keeps damage that only a kill can have left: {damaged[0]}")


def summary(life: "Life") -> Counter[str]:
    """Return what the run counts."""
    counts: Counter[str] = Counter(life.counts)
    counts.update({f"outcome_{name}": count for name, count in life.ledger.outcomes.items()})
    counts["acknowledged"] = life.ledger.acknowledged
    counts["handled"] = sum(len(calls) for group in life.ledger.handled.values() for calls in group.values())
    counts["events"] = life.kernel.events
    counts["name_servers"] = len(life.name_servers)
    counts["masters"] = len(life.groups)
    counts["slaves"] = len(life.brokers) - len(life.groups)
    return counts
