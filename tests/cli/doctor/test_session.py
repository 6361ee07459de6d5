"""One check after the other: new findings, gone ones, and the events between."""

import asyncio
import dataclasses
from collections.abc import Set
from typing import Any

import msgspec

from pocketmq.cli.doctor.broker_metrics import BrokerSettings
from pocketmq.cli.doctor.finding import Severity
from pocketmq.cli.doctor.reader import BrokerReader, Reading, Target
from pocketmq.cli.doctor.report import exit_code_of_rounds, plain_lines, render, worst_first
from pocketmq.cli.doctor.session import Round, Session
from pocketmq.cli.exit_codes import ExitCode
from pocketmq.common.errors import PocketMQError
from pocketmq.remoting.errors import ConnectFailed
from pocketmq.remoting.protocol.ha import HaStatusBody
from pocketmq.remoting.telemetry import PageCacheTelemetry, TelemetrySnapshot
from tests.cli.doctor.snapshots import refusal, settings, snapshot, stage, telemetry

TARGET = Target("broker-a", "127.0.0.1:10911")
BUSY = PageCacheTelemetry(busy=True, lock_held_ms=1500, timeout_ms=1000)


class Script(BrokerReader):
    """A reader that returns the given readings, one a check."""

    def __init__(self, *readings: Reading) -> None:
        super().__init__(timeout_ms=1)
        self.readings = list(readings)

    async def read(self, target: Target) -> Reading:
        return self.readings.pop(0)


class Pairs(BrokerReader):
    """A pair and a dead broker, which is given up when all the others have answered."""

    def __init__(self, others: int) -> None:
        super().__init__(timeout_ms=1)
        self.answered: list[str] = []
        self._others = others
        self._all = asyncio.Event()

    async def read(self, target: Target) -> Reading:
        if target.name == "dead":
            await self._all.wait()
            return failed(ConnectFailed("cannot connect", why="no answer within 1200 ms"))
        self.answered.append(target.address)
        if len(self.answered) == self._others:
            self._all.set()
        ha = HaStatusBody(broker_name=target.name, role="SLAVE")
        taken = dataclasses.replace(snapshot(telemetry(), ha=ha), address=target.address)
        return Reading(target, 100_000, taken, BrokerSettings(settings(namesrv_addr="n:1")))

    async def members(self, namesrv: str, names: Set[str]) -> list[Target]:
        return [Target(name, f"{name}-other:1") for name in names]


def reading(told: TelemetrySnapshot | None, *, at_ms: int = 100_000, **runtime: Any) -> Reading:
    taken = snapshot(told, at_ms=at_ms, **runtime)
    return Reading(TARGET, at_ms, taken, BrokerSettings(settings()))


def failed(error: PocketMQError) -> Reading:
    return Reading(TARGET, 100_000, error=error)


async def test_a_second_check_shows_new_and_gone_findings_and_the_rates() -> None:
    """The page cache becomes busy, then free; messages and refusals are counted between the checks."""
    found = [
        reading(telemetry()),
        reading(
            telemetry(page_cache=BUSY, refusals=[refusal("page_cache_busy", "[REJECTREQUEST]x", total=40)]),
            at_ms=102_000,
            msgPutTotalTodayNow="7000",
        ),
        reading(telemetry(refusals=[refusal("page_cache_busy", "[REJECTREQUEST]x", last_minute=0)]), at_ms=104_000),
    ]
    session = Session(Script(*found), [TARGET])
    first, second, third = [(await session.check())[0] for _ in range(3)]
    assert (first.new, first.gone, first.rates) == ((), (), ())
    assert "page-cache-busy" in second.new
    assert "1,000/s messages stored" in second.rates
    assert "20.0/s refused (40 in 2.0 s)" in second.rates
    assert any("page cache is busy now" in title for title in third.gone)
    assert third.diagnosis.findings == ()
    text = "\n".join(plain_lines([second]))
    assert "(new)" in text
    assert "since the previous check: 1,000/s messages stored" in text


async def test_a_dead_broker_delays_neither_the_others_nor_the_other_ends_of_their_pairs() -> None:
    """The dead one of ten is given up last here: a look that waited for it first would not end."""
    targets = [Target("dead", "dead:1"), *(Target(f"b{number}", f"b{number}:1") for number in range(9))]
    reader = Pairs(others=18)
    async with asyncio.timeout(30):
        rounds = await Session(reader, targets, asks_others=True).check()
    assert [bool(each.diagnosis.error) for each in rounds] == [True] + [False] * 9
    assert len(set(reader.answered)) == len(reader.answered) == 18


async def test_without_telemetry_the_first_check_reads_twice() -> None:
    """Totals alone do not show the present: two readings make the first diagnosis."""
    found = [reading(None, putMessageFailedTimes="1"), reading(None, at_ms=102_000, putMessageFailedTimes="4")]
    rounds = await Session(Script(*found), [TARGET], second_check_s=0).check()
    assert [finding.key for finding in rounds[0].diagnosis.findings] == ["puts-failed"]


async def test_a_broker_that_goes_away_is_one_error_and_comes_back() -> None:
    """The check reports it, and the next one forgets it."""
    error = ConnectFailed("cannot connect to x", why="Connection refused (after 0 ms)")
    session = Session(Script(reading(telemetry()), failed(error), reading(telemetry())), [TARGET])
    rounds = [(await session.check())[0] for _ in range(3)]
    assert [each.diagnosis.worst for each in rounds] == [None, Severity.ERROR, None]
    assert "nothing listens there" in rounds[1].diagnosis.findings[0].cure
    assert rounds[2].gone == ("the broker could not be read",)


async def test_the_exit_code_follows_the_worst() -> None:
    """0 without an error, 1 with one, 4 when no broker answered; one dead broker among others is an error."""
    fine, bad, dead = [
        (await Session(Script(each), [TARGET]).check())[0]
        for each in (reading(telemetry()), reading(telemetry(page_cache=BUSY)), failed(ConnectFailed("x")))
    ]
    assert exit_code_of_rounds([fine]) is ExitCode.OK
    assert exit_code_of_rounds([fine, bad]) is ExitCode.FAILED
    assert exit_code_of_rounds([fine, dead]) is ExitCode.FAILED
    assert exit_code_of_rounds([dead]) is ExitCode.NOT_REACHABLE
    assert exit_code_of_rounds([]) is ExitCode.NOT_REACHABLE


async def test_the_drawing_and_the_lines_say_the_same() -> None:
    """A terminal shows everything that a pipe gets: every finding with its evidence, cause, cure and setting."""
    import io

    from rich.console import Console

    shown = (await Session(Script(reading(telemetry(page_cache=BUSY), commitLogDiskRatio="0.8")), [TARGET]).check())[0]
    out = io.StringIO()
    Console(file=out, width=4000, force_terminal=True, color_system=None).print(render([shown]))
    drawn = out.getvalue()
    for finding in shown.diagnosis.findings:
        for text in (
            finding.title,
            finding.cause,
            finding.cure,
            *finding.evidence,
            *(s.cost for s in finding.settings),
        ):
            assert text in drawn
            assert any(text in line for line in plain_lines([shown]))
    assert "2 warnings" not in drawn
    assert "1 error, 1 warning" in drawn


async def test_several_brokers_are_summed_up_with_the_worst_first() -> None:
    """In the pipe and on the terminal: an error of the last broker, a bad setting, then what is merely slow."""
    import io

    from rich.console import Console

    slow = reading(telemetry(stages=[stage("append", p99=100.0, longest=160.0)]))
    bad = Reading(TARGET, 100_000, snapshot(telemetry()), BrokerSettings(settings(broker_fast_failure_enable="false")))
    rounds = [
        (await Session(Script(each), [TARGET]).check())[0]
        for each in (slow, bad, reading(telemetry()), failed(ConnectFailed("x")))
    ]
    keys = ["not-read", "bad-cure-fast-failure-off", "append-slow"]
    assert [finding.key for _, finding in worst_first(rounds)] == keys
    lines = list(plain_lines(rounds))
    assert lines[0] == "4 brokers, the worst first:"
    assert [line.rpartition("[")[2] for line in lines[1:4]] == [f"{key}]" for key in keys]
    assert lines[4] == ""
    out = io.StringIO()
    Console(file=out, width=4000, force_terminal=True, color_system=None).print(render(rounds))
    assert [line.rstrip() for line in out.getvalue().splitlines()[:4]] == lines[:4]
    assert next(plain_lines(rounds[:1])).startswith("broker-a at ")


async def test_json_holds_the_whole_round() -> None:
    """Scripts get keys, severities and advice as plain values."""
    shown = (await Session(Script(reading(telemetry(page_cache=BUSY))), [TARGET]).check())[0]
    told = msgspec.json.decode(msgspec.json.encode(shown))
    finding = told["diagnosis"]["findings"][0]
    assert (finding["key"], finding["severity"], finding["area"]) == ("page-cache-busy", "error", "page cache")
    assert finding["settings"][0]["name"] == "store.transient_store_pool_enable"
    assert msgspec.convert(told, Round) == shown


async def test_a_broker_that_was_not_read_is_not_asked_again_at_once() -> None:
    """A RocketMQ is read twice for one check; a dead broker beside it costs its time once."""
    asked: list[str] = []
    other = Target("broker-b", "127.0.0.1:10921")

    class Counting(BrokerReader):
        async def read(self, target: Target) -> Reading:
            asked.append(target.name)
            return (
                Reading(other, 100_000, error=ConnectFailed("x", why="refused")) if target is other else reading(None)
            )

    rounds = await Session(Counting(timeout_ms=1), [TARGET, other], second_check_s=0).check()
    assert asked == ["broker-a", "broker-b", "broker-a"]
    assert [bool(each.diagnosis.error) for each in rounds] == [False, True]
