"""Logs: nothing waits, nothing global changes, everything is bounded."""

import io
import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest
import structlog

from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import ConfigError
from pocketmq.common.logs import VALUE_CHARACTERS_MAX, CapturedLog, LogConfig, Logs, Repeats
from pocketmq.common.runner import SteppedRunner


class Bench:
    """Logs on a manual clock whose writer steps when told."""

    def __init__(self, **values: Any) -> None:
        self.clock = ManualClock()
        self.runner = SteppedRunner()
        self.stream = io.StringIO()
        self.logs = Logs(
            LogConfig(**{"format": "json", **values}), clock=self.clock, runner=self.runner, stream=self.stream
        )

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]


def test_an_event_is_one_json_line_with_time_level_logger_and_values() -> None:
    bench = Bench()
    bench.logs.logger("broker", topic="T").bind(group="g").info("started", port=1)
    assert bench.stream.getvalue() == ""  # the caller wrote nothing itself
    bench.runner.run_until_idle()
    assert bench.lines() == [
        {
            "timestamp": "2023-11-14T22:13:20.000Z",
            "level": "info",
            "logger": "broker",
            "event": "started",
            "topic": "T",
            "group": "g",
            "port": 1,
        }
    ]


def test_levels_below_the_configured_one_are_not_written() -> None:
    bench = Bench(level="warning")
    log = bench.logs.logger("x")
    log.debug("a")
    log.info("b")
    log.warning("c")
    log.error("d")
    bench.logs.close()
    assert [line["event"] for line in bench.lines()] == ["c", "d"]


def test_a_full_queue_drops_and_says_how_many() -> None:
    bench = Bench(queue_events_max=3, repeats_per_second_max=100)
    for number in range(10):
        bench.logs.logger("x").info("e", number=number)
    assert bench.logs.dropped_count == 7
    bench.runner.run_until_idle()
    assert [line.get("number") for line in bench.lines()] == [0, 1, 2, None]
    assert bench.lines()[-1]["event"] == "log_events_dropped"
    assert bench.lines()[-1]["count"] == 7


def test_the_queue_is_bounded_in_bytes_too() -> None:
    bench = Bench(queue_size_bytes_max=10_000, repeats_per_second_max=100)
    for _ in range(10):
        bench.logs.logger("x").info("e", text="y" * 3000)
    assert bench.logs.dropped_count == 8


def test_repeats_beyond_the_limit_are_counted_and_the_count_is_written() -> None:
    bench = Bench(repeats_per_second_max=2)
    log = bench.logs.logger("x")
    for number in range(5):
        log.warning("loop", number=number)
    log.warning("other")
    bench.clock.advance_ms(1000)
    log.warning("loop", number=5)
    bench.runner.run_until_idle()
    told = [(line["event"], line.get("number"), line.get("repeats_left_out")) for line in bench.lines()]
    assert told == [("loop", 0, None), ("loop", 1, None), ("other", None, None), ("loop", 5, 3)]
    assert bench.logs.left_out_count == 3


def test_the_count_of_repeats_is_written_even_if_none_follows() -> None:
    bench = Bench(repeats_per_second_max=1)
    for _ in range(4):
        bench.logs.logger("x").info("loop")
    bench.runner.run_until_idle()
    bench.clock.advance_ms(1001)
    bench.runner.step_all()
    assert bench.lines()[-1] | {"timestamp": ""} == {
        "timestamp": "",
        "level": "warning",
        "logger": "x",
        "event": "loop",
        "repeats_left_out": 3,
    }


def test_close_writes_what_is_queued_and_later_events_are_dropped() -> None:
    bench = Bench(repeats_per_second_max=2000)
    for _ in range(1500):
        bench.logs.logger("x").info("e")
    bench.logs.close()
    assert len(bench.lines()) == 1500
    bench.logs.logger("x").info("late")
    bench.logs.close()
    assert len(bench.lines()) == 1500
    assert bench.logs.dropped_count == 1


def test_values_are_bounded_copied_and_cannot_forge_a_line() -> None:
    bench = Bench()
    changing = [1]

    class Bad:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    bench.logs.logger("x").info(
        "e", body=b"z" * 99_999, text="t" * 99_999, many=changing, evil="a\nb\x1b\udc80", bad=Bad()
    )
    changing.append(2)
    bench.logs.logger("x").info("many", **{f"k{n}": n for n in range(200)})
    bench.logs.close()
    first, second = bench.lines()
    assert len(first["body"]) < VALUE_CHARACTERS_MAX + 40
    assert first["text"].endswith("… (99999 characters)")
    assert first["many"] == "[1]"
    assert first["evil"] == "a\\nb\\x1b\\udc80"
    assert first["bad"] == "<Bad: RuntimeError in its repr>"
    assert second["values_left_out"] > 100
    assert len(second) < 80


def test_an_exception_is_written_with_its_traceback() -> None:
    bench = Bench()
    try:
        raise KeyError("k")
    except KeyError:
        bench.logs.logger("x").exception("failed")
    bench.logs.close()
    assert bench.lines()[0]["level"] == "error"
    assert "KeyError: 'k'" in bench.lines()[0]["exception"]


def test_a_stream_that_fails_costs_the_line_not_the_program() -> None:
    bench = Bench()
    bench.logs.logger("x").info("e")
    bench.stream.close()
    bench.logs.close()
    assert bench.logs.dropped_count == 1


def test_a_stream_that_takes_nothing_does_not_keep_the_caller() -> None:
    """The rest is dropped, and counted; closing again does nothing."""
    release = threading.Event()

    class Stuck(io.StringIO):
        def write(self, text: str) -> int:
            release.wait(100)
            return len(text)

    logs = Logs(LogConfig(), stream=Stuck())
    for number in range(3):
        logs.logger("x").info(f"event-{number}")
    assert logs.close(timeout_s=0.05) is False
    assert logs.close() is False
    release.set()


def test_the_console_form_is_one_line_without_color_when_piped() -> None:
    bench = Bench(format="console")
    bench.logs.logger("store").warning("slow_append", took_ms=12)
    bench.logs.close()
    text = bench.stream.getvalue()
    assert text.startswith("2023-11-14T22:13:20.000Z [warning  ] slow_append")
    assert "[store] took_ms=12" in text
    assert "\x1b" not in text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_colors() -> None:
    stream = Terminal()
    logs = Logs(LogConfig(), clock=ManualClock(), runner=SteppedRunner(), stream=stream)
    logs.logger("store").warning("slow_append", took_ms=12)
    logs.close()
    assert "\x1b[" in stream.getvalue()
    assert "slow_append" in stream.getvalue()


def test_a_file_is_appended_to_and_a_place_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    for _ in range(2):
        logs = Logs(LogConfig(file=str(tmp_path / "a.log")), runner=SteppedRunner())
        logs.logger("x").info("e")
        logs.close()
    assert len((tmp_path / "a.log").read_text().splitlines()) == 2
    with pytest.raises(ConfigError, match=r"log.file=.*No such file"):
        Logs(LogConfig(file=str(tmp_path / "no" / "a.log")), runner=SteppedRunner())


def test_nothing_global_is_configured() -> None:
    before = structlog.get_config(), list(logging.getLogger().handlers), logging.getLogger().level
    configured = structlog.is_configured()
    bench = Bench()
    bench.logs.logger("x").info("e")
    bench.logs.close()
    assert (structlog.get_config(), list(logging.getLogger().handlers), logging.getLogger().level) == before
    assert structlog.is_configured() == configured


def test_the_kinds_that_are_watched_are_bounded() -> None:
    repeats = Repeats(1)
    for number in range(10_000):
        assert repeats.admit("x", f"e{number}", 0) == 0
    assert len(repeats) == 4096
    assert repeats.expire(1_000_000_000) == []
    assert len(repeats) == 0


def test_a_captured_log_keeps_events_of_bound_copies_too() -> None:
    log = CapturedLog()
    log.bind(remote="r").warning("closed", why="idle")
    log.info("e")
    assert log.of("closed") == [{"remote": "r", "why": "idle", "event": "closed", "level": "warning"}]
    assert len(log.events) == 2
