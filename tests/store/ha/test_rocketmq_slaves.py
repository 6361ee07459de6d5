"""Slaves with RocketMQ's protocol: they follow, are never counted, and need a permission."""

from pathlib import Path

import pytest

from pocketmq.store.append_result import PutStatus
from tests.store.ha.master import HEARTBEAT_MS, Master
from tests.store.ha.transports import ScriptedSlave
from tests.store.log_fakes import SEGMENT_BYTES


def report(slave: ScriptedSlave, offset: int) -> None:
    slave.raw(offset.to_bytes(8, "big"))


def frames(slave: ScriptedSlave) -> list[tuple[int, bytes]]:
    data = bytearray(1 << 20)
    count = slave.transport.receive_into(memoryview(data), 0) or 0
    out, at = [], 0
    while at < count:
        offset, size = int.from_bytes(data[at : at + 8], "big"), int.from_bytes(data[at + 8 : at + 12], "big")
        out.append((offset, bytes(data[at + 12 : at + 12 + size])))
        at += 12 + size
    return out


def test_a_slave_of_rocketmqs_follows_from_the_last_file_and_is_never_counted(tmp_path: Path) -> None:
    """Frames of 12 + at most 32 KiB, heartbeats with the next offset; SEND_OK never depends on it."""
    master = Master(tmp_path, ha_rocketmq_allowed_slaves="10.0.0.0/24")
    while master.store.committed_offset < 2 * SEGMENT_BYTES:
        master.append(b"a" * 700)
    start = 2 * SEGMENT_BYTES
    slave = ScriptedSlave(master.listener, "10.0.0.7:5000")
    report(slave, 0)
    master.settle()
    assert b"".join(body for _, body in frames(slave)) == master.log_bytes(start)
    before = master.store.committed_offset
    end = master.send(b"one")
    assert frames(slave) == [(before, master.log_bytes(before))]
    report(slave, end)
    master.settle()
    assert master.told == [(end, PutStatus.SLAVE_NOT_AVAILABLE)]
    status = master.ha.status()
    assert [(each.protocol, each.ack_offset, each.is_in_sync, each.behind_ms) for each in status.slaves] == [
        ("rocketmq", end, False, 0)
    ]
    assert not master.state.slaves, "nor is it asked after a crash"
    master.clock.advance_ms(HEARTBEAT_MS)
    master.settle()
    assert frames(slave) == [(end, b"")]
    report(slave, end + 1)
    master.settle()
    assert "greater than local commitLog offset" in str(master.events("slave_disconnected")[0]["why"])
    master.close()


@pytest.mark.parametrize("allowed", ["", "10.0.0.8", "2001:db8::/32"])
def test_rocketmqs_protocol_needs_leave(tmp_path: Path, allowed: str) -> None:
    """Otherwise every peer that sends eight bytes would be a slave."""
    master = Master(tmp_path, ha_rocketmq_allowed_slaves=allowed)
    slave = ScriptedSlave(master.listener, "10.0.0.7:5000")
    report(slave, 0)
    master.settle()
    assert not frames(slave)
    assert "ha_rocketmq_allowed_slaves" in master.refusals[0]
    master.close()


@pytest.mark.parametrize("offset", [1 << 40, 1])
def test_a_report_outside_of_the_log_is_refused(tmp_path: Path, offset: int) -> None:
    """RocketMQ leaves such a slave waiting for ever."""
    master = Master(tmp_path, ha_rocketmq_allowed_slaves="10.0.0.7")
    while master.store.committed_offset < 3 * SEGMENT_BYTES:
        master.append(b"a" * 700)
    master.store.components.segments.remove_first()
    slave = ScriptedSlave(master.listener, "10.0.0.7:5000")
    report(slave, offset)
    master.settle()
    assert f"slave reports offset {offset}" in master.refusals[0]
    master.close()
