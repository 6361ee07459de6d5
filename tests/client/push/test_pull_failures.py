"""Pulls that fail are logged once for a broker and a kind of error, however many queues it has."""

from pocketmq.client.errors import BrokerAnswerError
from pocketmq.client.push.pull_failures import KINDS_MAX, PullFailures
from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import PocketMQError
from pocketmq.remoting.errors import ConnectFailed
from tests.client.consume_fakes import Events


def answer(code: int, remark: str) -> PocketMQError:
    return BrokerAnswerError("pull refused", answer_code=code, remark=remark, address="127.0.0.1:1")


def lines(log: Events) -> list[tuple[str, int]]:
    return [(fields["queue"], fields["left_out"]) for _, _, fields in log.events]


def test_a_broker_that_stops_is_one_line_for_all_its_queues() -> None:
    """Then at most one every ten seconds, with the number of those left out."""
    log, clock = Events(), ManualClock()
    failures = PullFailures(clock, log)
    for second in range(12):
        for queue in range(8):
            failures.note("broker-a", f"T@broker-a:{queue}", answer(14, "the broker is shutting down"))
        clock.advance_ms(1_000)
        assert len(log.events) == 1 + (second >= 10)
    assert lines(log) == [("T@broker-a:0", 0), ("T@broker-a:0", 79)]
    assert "the broker is shutting down" in log.events[0][2]["error"]


def test_another_broker_and_another_reason_are_lines_of_their_own() -> None:
    log = Events()
    failures = PullFailures(ManualClock(), log)
    for broker in ("a", "b"):
        for error in (answer(14, "x"), answer(1, "x"), ConnectFailed("cannot connect")):
            for _ in range(3):
                failures.note(broker, broker, error)
    assert len(log.events) == 6


def test_what_it_remembers_is_bounded() -> None:
    failures = PullFailures(ManualClock(), Events())
    for number in range(2 * KINDS_MAX):
        failures.note(f"b{number}", "q", answer(1, "x"))
    assert len(failures._kinds) <= KINDS_MAX
