"""The log's end of the short path, without a broker."""

from pathlib import Path
from typing import cast

from pocketmq.common.record_codec import decode_record
from pocketmq.store.short_append import PATCHED_AT, SHOWN_APART_MAX, ShortFrame, ShortSection
from tests.store.log_fakes import HookedFileSystem, Stepped, bodies

HOST = bytes(8)


def short_frame(stepped: Stepped, *parts: tuple[str, bytes]) -> ShortFrame:
    """Return a frame of one record (topic, body) for each part; the topics' queues exist."""
    store, buffer, sections = stepped.store, b"", []
    for number, (topic, body) in enumerate(parts):
        group = bodies(body, topic=topic)
        queue = store.consume_queues.get(topic, 0)
        assert queue is not None
        key = b"%032d" % number
        record = (len(buffer) + PATCHED_AT, group.buffer.nbytes, 0, 1, 0, key)
        sections.append((ShortSection(topic, 0, queue), [record]))
        buffer += group.buffer.tobytes()
    return ShortFrame(sections, memoryview(bytearray(buffer)), len(parts), len(buffer), HOST, store.gate.generation)


def test_a_part_of_a_frame_that_got_its_entries_is_announced(tmp_path: Path) -> None:
    """Where one queue cannot take its entry, those before it are shown at once, and the rest with the next pass."""
    stepped = Stepped(tmp_path)
    store = stepped.store
    stepped.append(b"0", topic="A")
    stepped.append(b"0", topic="B")
    shown: list[tuple[str, int, int]] = []
    store.on_shown.append(shown.extend)
    queue = store.consume_queues.get("B", 0)
    assert queue is not None
    queue.removed = True
    assert store.short.append([short_frame(stepped, ("A", b"1"), ("B", b"2"))], 0)[0] == 1
    assert shown == [("A", 0, 2)]
    assert stepped.bodies("A") == [b"0", b"1"]
    queue.removed = False
    stepped.dispatch()
    assert shown == [("A", 0, 2), ("B", 0, 2)]
    assert stepped.bodies("B") == [b"0", b"2"]
    store.close()


def test_a_long_short_append_is_reported(tmp_path: Path) -> None:
    """RocketMQ's words appear above 500 ms under the lock, as for a wide append; below that none."""
    times_ms: list[int] = []

    def hook(operation: str, path: str) -> None:
        if operation == "write" and "/commitlog/" in path and times_ms:
            stepped.clock.advance_ms(times_ms.pop())

    stepped = Stepped(tmp_path, HookedFileSystem(hook))
    stepped.append(b"0", topic="A")
    frames = [short_frame(stepped, ("A", b"%d" % number), ("A", b"x")) for number in range(2)]
    for slow_ms in (500, 612):
        times_ms.append(slow_ms)
        assert stepped.store.short.append(frames, stepped.clock.monotonic_ns())[0] == 2
        frames = [short_frame(stepped, ("A", b"x"), ("A", b"y")) for _ in range(2)]
    told = [event for event in stepped.log.events if event["event"] == "[NOTIFYME]putMessage in lock cost time(ms)"]
    facts = {"lock_held_ms": 612, "lock_wait_ms": 0, "records": 4}
    facts["size_bytes"] = sum(frame.size_bytes for frame in frames)
    assert told == [{"event": "[NOTIFYME]putMessage in lock cost time(ms)", "level": "warning", **facts}]
    stepped.store.close()


def test_buffered_rows_are_shown_by_the_commit(tmp_path: Path) -> None:
    """In the thread that commits: a few one by one, each with its record; many at once. The index has them after the
    next tick. A wide append in between keeps the order."""
    shared = tmp_path / "shm"
    shared.mkdir()
    stepped = Stepped(tmp_path / "store", transient_store_pool_enable=True, transient_store_pool_path=str(shared))
    store = stepped.store
    stepped.append(b"0", topic="A")
    stepped.append(b"0", topic="B")
    store.show_all()
    news: list[tuple[object, ...]] = []
    store.on_shown.append(lambda *told: news.append(told))
    put: list[list[tuple[str, int, int]]] = []
    store.on_dispatched.append(put.append)

    def short(*parts: tuple[str, bytes]) -> None:
        assert store.short.append([short_frame(stepped, *parts)], 0)[0] == 1

    short(("A", b"1"))
    short(("B", b"1"))
    assert (news, stepped.bodies("A")) == ([], [b"0"])
    store.log.commit()
    assert [(told[0], len(told)) for told in news] == [([("A", 0, 2)], 3), ([("B", 0, 2)], 3)]
    assert [decode_record(bytes(cast(bytes, told[2])), check_crc=False).topic for told in news] == ["A", "B"]
    assert (stepped.bodies("A"), stepped.bodies("B")) == ([b"0", b"1"], [b"0", b"1"])
    assert put == []
    store.short.index_shown()
    assert put == [[("A", 0, 2), ("B", 0, 2)]]
    news.clear()
    for number in range(SHOWN_APART_MAX + 1):
        short(("A", b"x%d" % number), ("B", b"y%d" % number))
    store.short.index_shown()
    assert store.short.waiting == 2 * (SHOWN_APART_MAX + 1)
    store.log.commit()
    assert len(news) == 1
    put.clear()
    assert store.short.hand_on_soon()
    end = 2 + SHOWN_APART_MAX + 1
    assert put == [[("A", 0, end), ("B", 0, end)]], "a tick came between the append and the commit"
    short(("A", b"short"))
    stepped.append(b"wide", topic="A")
    short(("A", b"behind"))
    store.log.commit()
    stepped.dispatch()
    assert stepped.bodies("A")[-3:] == [b"short", b"wide", b"behind"]
    store.close()


def test_rows_beyond_the_limit_are_shown_once_it_has_passed_them(tmp_path: Path) -> None:
    """In their order, with the bytes of a single record; what a tick hands on before waits in the dispatcher."""
    stepped = Stepped(tmp_path)
    store = stepped.store
    stepped.append(b"0", topic="A")
    limit = [store.committed_offset]
    store.dispatcher.limit = lambda: limit[0]
    news: list[tuple[object, ...]] = []
    store.on_shown.append(lambda *told: news.append(told))
    ends = []
    for body in (b"1", b"2", b"3"):
        assert store.short.append([short_frame(stepped, ("A", body))], 0)[0] == 1
        ends.append(store.committed_offset)
    assert (stepped.bodies("A"), news) == ([b"0"], [])
    limit[0] = ends[0]
    store.short.show_held(limit[0])
    assert stepped.bodies("A") == [b"0", b"1"]
    assert [len(told) for told in news] == [3], "queues, tags code, record"
    store.short.hand_on()
    stepped.dispatch()
    assert stepped.bodies("A") == [b"0", b"1"]
    limit[0] = ends[2]
    store.short.show_held(limit[0])
    stepped.dispatch()
    assert stepped.bodies("A") == [b"0", b"1", b"2", b"3"]
    store.close()
