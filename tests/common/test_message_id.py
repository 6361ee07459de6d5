"""Message ids."""

import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.common.clock import ManualClock, SystemClock
from pocketmq.common.errors import MessageIllegal
from pocketmq.common.message_id import UniqueIdGenerator, offset_msg_id, parse_offset_msg_id
from pocketmq.common.record import encode_host

hosts = st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20))


@given(hosts, st.integers(0, (1 << 63) - 1))
def test_offset_ids_come_back(host: bytes, offset: int) -> None:
    """Host and offset survive the text."""
    text = offset_msg_id(host, offset)
    assert len(text) == len(host) * 2 + 16
    assert parse_offset_msg_id(text) == (host, offset)


def test_a_known_offset_id() -> None:
    """The text RocketMQ shows for 192.168.0.1:10911 and offset 0x1D4."""
    assert offset_msg_id(encode_host("192.168.0.1", 10911), 0x1D4) == "C0A8000100002A9F00000000000001D4"


@pytest.mark.parametrize("text", ["", "00", "zz" * 16, "0" * 31, "0" * 33, " " * 32, "00 " * 16])
def test_other_texts_are_refused(text: str) -> None:
    """Texts that are not hexadecimal, or do not have 32 or 56 digits."""
    with pytest.raises(MessageIllegal):
        parse_offset_msg_id(text)


def test_the_layout_is_rocketmqs() -> None:
    """Address, pid, generator number, ms since the month began, counter."""
    clock = ManualClock()
    ids = UniqueIdGenerator(clock, ip=b"\x0a\x00\x00\x07", pid=0x12345, instance=0xCAFE)
    first = ids.next()
    assert first[:20] == "0A000007" + "2345" + "0000CAFE"
    assert len(first) == 32
    assert first.upper() == first
    clock.advance_ms(5)
    assert int(ids.next()[20:28], 16) - int(first[20:28], 16) == 5
    assert len(UniqueIdGenerator(clock, ip=bytes(16)).next()) == 56
    assert ids.next_bytes(2)[1].decode() == f"{first[:20]}{int(first[20:], 16) + (5 << 16) + 2:012X}"


def test_ids_stay_unique_when_the_clock_stands_or_goes_back() -> None:
    """More than 65,536 ids in one ms, and a clock set back by an hour and then by a month."""
    clock = ManualClock(1_700_000_000_000)
    ids = UniqueIdGenerator(clock)
    seen = set(ids.next_bytes(70_000))
    for delay_ms in (1, -3_600_000, 2_000, -40 * 86_400_000, 50 * 86_400_000):
        clock._now_ns += delay_ms * 1_000_000
        seen.update(ids.next_bytes(70_000))
        seen.add(ids.next().encode())
    assert len(seen) == 6 * 70_000 + 5


def test_a_new_month_does_not_repeat_ids() -> None:
    """The ms since the start of the month repeat, under another generator number."""
    clock = ManualClock(1_700_000_000_000)
    ids = UniqueIdGenerator(clock, pid=1, instance=1)
    seen: set[str] = set()
    for _ in range(4 * 31):
        seen.update(ids.next() for _ in range(5))
        clock.advance_ms(86_400_000)
    assert len(seen) == 4 * 31 * 5


def test_unique_across_threads() -> None:
    """Threads share one generator."""
    ids = UniqueIdGenerator(SystemClock())
    made: list[list[str]] = [[] for _ in range(4)]

    def make(out: list[str]) -> None:
        for _ in range(5_000):
            out.append(ids.next())
            out.extend(key.decode() for key in ids.next_bytes(2))

    threads = [threading.Thread(target=make, args=(out,)) for out in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set().union(*made)) == 4 * 15_000


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_unique_across_a_fork() -> None:
    """Parent and child continue with different ids, from the same generator and the same instant."""
    ids = UniqueIdGenerator(ManualClock())
    before = ids.next()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, b"".join(ids.next_bytes(50)))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    theirs = {data[at : at + 32].decode() for at in range(0, len(data), 32)}
    ours = {before} | {key.decode() for key in ids.next_bytes(50)}
    assert len(theirs) == 50
    assert not theirs & ours


@given(st.integers(0, 3000), st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16))
def test_ids_in_rows_are_the_same_ids(count: int, ip: bytes) -> None:
    """next_rows continues where next_bytes ended, in the same form."""
    one, other = (UniqueIdGenerator(ManualClock(), ip=ip, pid=7, instance=9) for _ in range(2))
    assert one.next() == other.next()
    assert one.next_rows(count).tobytes() == b"".join(other.next_bytes(count))
    assert one.next() == other.next()


def test_a_bad_address_is_refused() -> None:
    """An address has 4 or 16 bytes."""
    with pytest.raises(MessageIllegal):
        UniqueIdGenerator(ManualClock(), ip=b"\x01")
