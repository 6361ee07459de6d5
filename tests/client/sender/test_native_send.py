"""Records and requests of a native append, without a broker."""

from typing import Any

from pocketmq.client.connection.instance import BrokerConnection
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.sender.native_send import NativeSend
from pocketmq.client.sender.section import Section
from pocketmq.common.message import Message
from pocketmq.common.record_codec import PlainRecordBuilder
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.hello import Announcement

CHANNEL: Any = None
POCKETMQ = BrokerConnection("b", "127.0.0.1:1", CHANNEL, Announcement(cluster="c", broker="b"))
ROCKETMQ = BrokerConnection("r", "127.0.0.1:2", CHANNEL, None)


def section(queue_id: int, count: int, *, half: bool = False) -> Section:
    queue = MessageQueue("T", "b", queue_id)
    made = Section(None, queue, build=None, started_ns=0, deadline_ns=1, born_ms=7, attempts_max=1, half=half)
    made.messages = [Message("T", b"x") for _ in range(count)]
    made.uniq_keys = [b"%032d" % number for number in range(count)]
    return made


def test_brokers_of_one_kind_share_a_builder_and_rocketmq_has_none() -> None:
    """The kind is cluster and address family; a RocketMQ broker accepts no records."""
    native = NativeSend("g")
    builder = native.builder(POCKETMQ)
    assert builder is not None
    assert native.builder(POCKETMQ) is builder
    assert native.builder(ROCKETMQ) is None


def test_a_section_that_waited_for_its_broker_gets_the_records_of_a_direct_build() -> None:
    """However the section was made, the bytes are equal."""
    native, late = NativeSend("g"), section(3, 2)
    builder = native.builder(POCKETMQ)
    assert builder is not None
    native.build(builder, late, POCKETMQ)
    direct = PlainRecordBuilder("c", builder_family())
    assert late.records == [direct.build(late.messages[0], 3, key, 7) for key in late.uniq_keys]


def builder_family() -> int:
    assert POCKETMQ.announcement is not None
    return POCKETMQ.announcement.family


def test_a_request_names_its_sections_and_its_time() -> None:
    """Halves have their own code; less than a millisecond counts as one."""
    native = NativeSend("g")
    plain, half = section(0, 2), section(1, 1, half=True)
    plain.records, half.records = [b"a", b"bc"], [b"d"]
    code, header, body = native.request([plain], True, 1500.9)
    assert (code, header.sections, header.timeout_ms) == (RequestCode.NATIVE_APPEND, [("T", 0, 2)], 1500)
    assert body == b"\0\0\0\1\0\0\0\2abc"
    code, header, _ = native.request([half], True, 0.2)
    assert (code, header.timeout_ms) == (RequestCode.NATIVE_HALF_APPEND, 1)
