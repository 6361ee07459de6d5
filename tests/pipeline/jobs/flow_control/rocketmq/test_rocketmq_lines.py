"""Lines of text logs: every layout of RocketMQ's logback gives the same moment; nothing that a log holds stops it."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.common.errors import ConfigError
from pocketmq.pipeline.jobs.flow_control.blocks import BLOCK_BYTES, LINE_BYTES_MAX, read_blocks
from pocketmq.pipeline.jobs.flow_control.facts import Fact
from pocketmq.pipeline.jobs.flow_control.files import find_logs, logs_of
from pocketmq.pipeline.jobs.flow_control.log_reader import Reading, Zones, read_log
from pocketmq.pipeline.jobs.flow_control.rocketmq.lines import zone_of

MOMENT_MS = 1_795_445_000_000
"""2026-11-23 14:43:20 UTC."""
BUSY = "TransientStorePool only remain 0 sheets."
REFUSED = (
    "org.apache.rocketmq.client.exception.MQBrokerException: CODE: 2  DESC: [TIMEOUT_CLEAN_QUEUE]broker busy, start "
    "flow control for a while, period in queue: 205ms, size of queue: 17 BROKER: 10.0.0.1:10911"
)
SEND = "sendKernelImpl exception, resend at once, InvokeID: 7, RT: 21ms, Broker: MessageQueue [topic=T, brokerName=b-1, queueId=0]"  # noqa: E501


def read(path: Path, zones: Zones | None = None) -> tuple[list[tuple[int, int, Fact]], Reading]:
    reading = Reading()
    return list(read_log(str(path), reading, zones or Zones(client="UTC"))), reading


def facts_in(path: Path, data: bytes) -> list[Fact]:
    path.write_bytes(data)
    return [fact for _, _, fact in read(path)[0]]


@pytest.mark.parametrize(
    "line",
    [
        f"2026-11-23 22:43:20 WARN AllocateMappedFileService - {BUSY}",
        f"2026-11-23 22:43:20 WARN - {BUSY}",
        f"2026-11-23 22:43:20 - {BUSY}",
        f"2026-11-23 14:43:20,000 WARN RocketmqClient - {BUSY}",
        f"2026-11-23 22:43:20.000 WARN  [4711] [main] [RocketmqClient#send:123] - {BUSY}",
        f"2026-11-23 14:43:20.000  WARN 1 --- [main] com.example.App : {BUSY}",
        f"2026-11-23T14:43:20.000Z  WARN 1 --- [main] com.example.App : {BUSY}",
        f"2026-11-23T22:43:20.000+08:00 [main] WARN com.example.App - {BUSY}",
        f"2026-11-23T14:43:20.123456789Z stdout F 2026-11-23 22:43:20 WARN main - {BUSY}",
        f'{{"log":"2026-11-23 22:43:20 WARN main - {BUSY}\\n","stream":"stdout","time":"2026-11-23T14:43:20.1Z"}}',
    ],
)
def test_every_layout_gives_the_moment(tmp_path: Path, line: str) -> None:
    """Brokers and clients of 5.3 write GMT+8, clients of 4.9 their machine's zone, applications anything."""
    path = tmp_path / "store.log"
    path.write_text(line + "\r\n")
    [(number, at_ms, fact)], reading = read(path)
    assert (number, at_ms, fact.kind, fact.name) == (1, MOMENT_MS, "event", "transient_store_pool_low")
    assert "remain 0 sheets" in fact.text
    assert dict(reading.counts()) == {"lines": 1, "events": 1}


def test_a_stack_trace_belongs_to_its_line(tmp_path: Path) -> None:
    """The exception below a warning says why; it counts once, however often its causes repeat it."""
    text = (
        f"2026-11-23 14:43:20,000 WARN RocketmqClient - {SEND}\n{REFUSED}\nFor more information, please visit the url\n"
        f"\tat org.apache.rocketmq.client.impl.MQClientAPIImpl.processSendResponse(MQClientAPIImpl.java:731)\n"
        f"Caused by: {REFUSED}\n2026-11-23 14:43:20,002 INFO RocketmqClient - done\n"
    )
    refusal, attempt = facts_in(tmp_path / "rocketmq_client.log", text.encode())
    assert (refusal.cause, refusal.tag, refusal.target, refusal.count) == (
        "queue_timeout",
        "TIMEOUT_CLEAN_QUEUE",
        "b-1",
        1,
    )
    assert (attempt.name, attempt.again, attempt.ended, attempt.value) == ("answer", 0, 1, 21), "4.9 ends at code 2"
    assert attempt.text.startswith("[TIMEOUT_CLEAN_QUEUE]")


def test_a_stack_trace_below_an_info_line_counts(tmp_path: Path) -> None:
    """An application may log the exception of a send at any level."""
    text = f"2026-11-23 14:43:20.000  INFO 1 --- [main] App : oh\n\tat x.y(Z.java:1)\nCaused by: {REFUSED}\n"
    kinds = [fact.kind for fact in facts_in(tmp_path / "app.log", text.encode())]
    assert kinds == ["refusal", "attempt"]


def test_texts_without_any_time_count_for_the_time_of_the_file(tmp_path: Path) -> None:
    """Lines as people paste them: no time, no level."""
    path = tmp_path / "pasted.log"
    path.write_text(
        "MQBrokerException:CODE:2 DESC:[TIMEOUT_CLEAN_QUEUE]broker busy,start flow control for a while,"
        "period in queue:235ms,size of queue:875\n"
        "[REJECTREQUEST]system busy, start flow control for a while\n"
        "org.apache.rocketmq.remoting.exception.RemotingTooMuchRequestException: sendDefaultImpl call timeout\n"
        "and a word about it\n"
    )
    facts, reading = read(path)
    assert {at_ms for _, at_ms, _ in facts} == {int(path.stat().st_mtime) * 1000}
    assert [fact.tag for _, _, fact in facts if fact.kind == "refusal"] == ["TIMEOUT_CLEAN_QUEUE", "REJECTREQUEST"]
    assert [fact.cause for _, _, fact in facts if fact.name == "send"] == ["timeout"]
    assert dict(reading.counts()) == {"lines": 4, "foreign": 1, "undated": 3}


@pytest.mark.parametrize("encoding", ["utf-8", "gb18030"])
def test_a_log_in_another_language(tmp_path: Path, encoding: str) -> None:
    """Java puts the C library's words into its exceptions, in the language and encoding of the process."""
    text = (
        "2026-11-23 22:43:20 ERROR FlushRealTimeService - Error occurred when force data to disk.\n"
        "java.io.IOException: 设备上没有空间\n2026-11-23 22:43:21 ERROR DefaultHAClient - 写入失败\n"
        "java.io.IOException: 只读文件系统\n"
    )
    facts = facts_in(tmp_path / "storeerror.log", text.encode(encoding))
    assert [fact.name for fact in facts] == ["disk_full", "append_failed", "slave_disk_failed"]
    assert "设备上没有空间" in facts[0].text
    assert "写入失败" in facts[2].text


def test_utf_16_is_read(tmp_path: Path) -> None:
    """Windows tools save like this."""
    text = f"2026-11-23 22:43:20 WARN main - {BUSY}\n" * 3
    [fact] = facts_in(tmp_path / "store.log", text.encode("utf-16"))
    assert fact.count == 3, "one second's equal facts are one row"


def test_one_line_of_any_length_costs_bounded_memory(tmp_path: Path) -> None:
    """A gigabyte without a line end is read in blocks; here some megabytes, packed."""
    line = f"2026-11-23 22:43:20 WARN main - {BUSY}\n".encode()
    path = tmp_path / "broker.log.gz"
    path.write_bytes(gzip.compress(line + b"x" * (9 * LINE_BYTES_MAX) + b"\n" + line + b"y" * (2 * LINE_BYTES_MAX)))
    assert max(len(block) for block, _ in read_blocks(str(path))) <= LINE_BYTES_MAX + 2 * BLOCK_BYTES
    facts, reading = read(path)
    assert [(number, fact.count) for number, _, fact in facts] == [(1, 2)]
    assert dict(reading.counts()) == {"lines": 4, "events": 2, "enormous": 2}


@given(st.lists(st.integers(0, 2000), max_size=12), st.integers(1, 300))
def test_blocks_are_the_file(sizes: list[int], cut: int) -> None:
    """However reads split it, the blocks put together are the file, and each but the last ends with a line."""
    from pocketmq.pipeline.jobs.flow_control import blocks

    data = b"\n".join(b"a" * size for size in sizes)
    parts = [data[at : at + cut] for at in range(0, len(data), cut)]
    found = [block for block, _ in blocks._blocks(lambda _: parts.pop(0) if parts else b"")]
    assert b"".join(found) == data
    assert all(block.endswith(b"\n") for block in found[:-1])


_PIECES = st.sampled_from(
    [
        b"2026-11-23 22:43:20 WARN main - ",
        b"2026-11-23 14:43:20,123 WARN RocketmqClient - ",
        b"9999-99-99 99:99:99 ERROR x - ",
        b"2026-11-23 22:43:20",
        b'{"event":"refused_queue_timeout","timestamp":"2026-11-23T14:43:20.000Z","count":1e999}',
        b'{"log":"',
        b'{"event":"interval","timestamp":"2026-11-23T14:43:20.000Z","level":[{}],',
        b"CODE: 99999999999 DESC: [",
        b"CODE: 2  DESC: [OVERLOAD] BROKER: x",
        b"[PAGECACHERT] TotalPut 1, [<=0ms]:1 [10s~]:99999999999999999999",
        b"[WATERMARK] Send Queue Size: 1 SlowTimeMills: ",
        b"sendKernelImpl exception, Broker: MessageQueue [brokerName=",
        b"tryLockBatch, message queue locked by other client. brokerName=\xff\xfe]",
        b"Flush data to disk costs 18446744073709551616 ms",
        b"RemotingTimeoutException",
        b"No space left on device",
        b"\tat a.b(C.java:1)\n",
        b"\r\n",
        b"\n",
        b"\x1f\x8b",
        b"\xff\xfe",
        "设备上没有空间".encode("gb18030"),
    ]
)


@given(st.lists(st.one_of(_PIECES, st.binary(max_size=30)), max_size=25))
def test_no_bytes_stop_the_reader(tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]) -> None:
    """Any mixture of RocketMQ's lines and rubbish is read to its end; texts are short and printable, numbers finite."""
    path = tmp_path_factory.getbasetemp() / "hostile.log"
    path.write_bytes(b"".join(pieces))
    facts, reading = read(path)
    for number, at_ms, fact in facts:
        assert 1 <= number <= reading.lines
        assert 0 < at_ms < 1 << 42
        assert len(fact.text) <= 400
        assert fact.text.isprintable()
        assert 0 <= fact.value < 1e16
        assert 0 <= fact.count < 1 << 53


def test_files_of_one_broker_are_one_log() -> None:
    """RocketMQ writes a file for each logger; the rotated ones have a folder of their own."""
    paths = [
        *("/a/rocketmqlogs/broker.log", "/a/rocketmqlogs/store.log", "/a/rocketmqlogs/otherdays/store.3.log"),
        *("/a/rocketmqlogs/otherdays/broker.1.log.gz", "/a/rocketmqlogs/rocketmq_client.log"),
        *("/a/rocketmqlogs/other_days/rocketmq_client-2.log.gz", "/b/broker.log", "/b/broker.log.1"),
    ]
    logs = logs_of(paths)
    assert [logs[path] for path in paths[:4]] == ["/a/rocketmqlogs"] * 4
    assert logs[paths[4]] == logs[paths[5]] == "/a/rocketmqlogs/rocketmq_client.log"
    assert logs["/b/broker.log"] == logs["/b/broker.log.1"] == "/b/broker.log", "PocketMQ's broker has one file"


def test_rotated_files_are_found(tmp_path: Path) -> None:
    """The names that RocketMQ's logback gives them, 4.9 and 5.3."""
    names = ["broker.log", "otherdays/broker.1.log", "otherdays/store.10.log.gz", "other_days/rocketmq_client-1.log.gz"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert find_logs([str(tmp_path)]) == sorted(str(tmp_path / name) for name in names)


def test_zones() -> None:
    """Offsets and names; everything else is an error that shows examples."""
    assert zone_of("local") is None
    assert str(zone_of("+08:00")) == "UTC+08:00"
    assert str(zone_of("GMT-3")) == "UTC-03:00"
    assert str(zone_of("UTC")) == "UTC"
    for wrong in ("", "Mars", "+99:00", "../etc/passwd"):
        with pytest.raises(ConfigError, match="bad time zone"):
            zone_of(wrong)
