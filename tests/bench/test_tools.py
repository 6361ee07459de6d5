"""The RocketMQ-shaped tools take RocketMQ's options and follow them."""

import re
from pathlib import Path

import pytest

from bench.rocketmq import consumer, producer
from bench.rocketmq.lines import SendCounts
from bench.rocketmq.producer import BenchmarkProducer, properties_of


def test_defaults_are_those_of_rocketmq() -> None:
    """RocketMQ's options and defaults, and the start lines they give."""
    options = producer.checked([])
    assert (options.topic, options.threadCount, options.messageSize) == ("BenchmarkTest", 64, 128)
    assert producer.start_line(options) == (
        "topic: BenchmarkTest threadCount: 64 messageSize: 128 keyEnable: false propertySize: 0 tagCount: 0 "
        "traceEnable: false aclEnable: false messageQuantity: 0\ndelayEnable: false delayLevel: 1\nasyncEnable: false"
    )
    options = consumer.checked([])
    assert consumer.start_line(options) == (
        "topic: BenchmarkTest, threadCount 20, group: benchmark_consumer, suffix: false, filterType: null, "
        "expression: null, msgTraceEnable: false, aclEnable: false"
    )


def test_options_with_two_letters_are_not_those_with_one() -> None:
    """``-ct`` is no ``-c t`` and ``-ri`` no ``-r i``; values are separate words, as in RocketMQ."""
    options = producer.checked(["-c", "TRUE", "-ct", "LZ4", "-cl", "3", "-ch", "10", "-ri", "2000", "-k", "yes"])
    assert (options.compressEnable, options.compressType, options.compressLevel) == (True, "LZ4", 3)
    assert (options.compressOverHowMuch, options.reportInterval, options.keyEnable) == (10, 2000, False)


def test_async_has_one_thread() -> None:
    """RocketMQ ignores ``-w`` for asynchronous sends."""
    assert producer.checked(["-y", "true", "-w", "8"]).threadCount == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-a", "true"], "signs no requests"),
        (["-b", "16", "-y", "true"], "exclude each other"),
        (["-w", "0"], "threadCount must be at least 1"),
        (["-s", "many"], "invalid int value"),
        (["--unknown"], "unrecognized"),
    ],
)
def test_what_cannot_be_done_is_said_at_the_start(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program ends with a line that names the mistake."""
    with pytest.raises(SystemExit):
        producer.checked(arguments)
    assert said in capsys.readouterr().err


def test_the_consumer_reads_its_filter_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``-e`` names a file, as in RocketMQ; a missing file is an error."""
    file = tmp_path / "expression"
    file.write_text("a > 5\n")
    assert consumer.checked(["-f", "SQL92", "-e", str(file)]).expression_text == "a > 5"
    with pytest.raises(SystemExit):
        consumer.checked(["-f", "TAG", "-e", str(tmp_path / "none")])
    assert "no file" in capsys.readouterr().err


def test_a_group_may_have_a_suffix() -> None:
    """``-p true`` adds a suffix of up to two digits."""
    assert re.fullmatch(r"g_\d{1,2}", consumer.checked(["-g", "g", "-p", "true"]).group)


def test_messages_are_made_as_the_options_ask() -> None:
    """The options set size, keys, tags, properties and delay."""
    options = producer.checked(["-s", "77", "-k", "true", "-l", "3", "-p", "40", "-d", "true", "-e", "2"])
    message = BenchmarkProducer(options).message()
    assert len(message.body) == 77
    assert message.keys
    assert re.fullmatch(r"tag[012]", message.tags)
    assert message.properties is not None
    assert sum(len(name) + len(value) for name, value in message.properties.items()) > 40
    assert message.delay_time_level == 2


def test_properties_stop_just_past_their_size() -> None:
    """Only the last pair exceeds the limit."""
    assert properties_of(10, 7) == {"prop0": "hello7", "prop1": "7"}
    assert len(properties_of(40, 7)) == 6


def test_failures_count_in_their_own_column() -> None:
    """Refused sends and unanswered sends have a column each."""
    counts = SendCounts()
    counts.failed(answered=True, messages=16)
    counts.failed(answered=False)
    assert (counts.response_failed, counts.send_failed, counts.messages_failed) == (1, 1, 17)
