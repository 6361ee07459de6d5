"""``[TIMEOUT_CLEAN_QUEUE]``: a queue of sends that nobody can serve in time.

Lives here: the four runs side by side.
"""

from typing import Final

from pocketmq.cli.scenario.harness.cluster import APPENDS
from pocketmq.cli.scenario.harness.load import Load, Options
from pocketmq.cli.scenario.harness.phase import (
    Measured,
    Plan,
    all_delivered,
    expect,
    provoked,
    switches,
)
from pocketmq.cli.scenario.report.report import Check

CURE: Final = (
    "fast failure (on by default) with SYSTEM_BUSY in the producer's retry codes (default since 5.3) and a second "
    "broker; or group append (the default of send_drain_max): what waits is taken together and appended at once"
)
PRICE: Final = (
    "retries multiply load: backoff, retry-after and the retry budget bound them; with group append up to one drain of "
    "requests waits for one append, longer than its limit if that append hangs"
)
APPEND_MS: Final = 100
SWEPT: Final = "[TIMEOUT_CLEAN_QUEUE]"
LEAST: Final = 0.85
"""Share of the sends that must meet the fate a run is about; the others are served before it, or come after it."""


def plans(quick: bool) -> list[Plan]:
    """Return the four runs: the same load and the same slow disk each time."""
    load = Load(burst=300, rate=20, seconds=1) if quick else Load(burst=2000, rate=20, seconds=4)
    timeout_ms = 1000 if quick else 3000
    slow = {**APPENDS, "delay_ms": APPEND_MS}
    pace = {"broker.send_drain_max": "1"}
    once = Options(timeout_ms=timeout_ms)
    return [
        Plan(
            "without fast failure",
            "fault",
            "every send waits its turn of 100 ms; nearly all clients give up first; their messages are stored later",
            load,
            switches((0, [slow])),
            _timed_out,
            brokers=({**pace, "broker.broker_fast_failure_enable": "false"},),
            options=once,
        ),
        Plan(
            "with fast failure",
            "fault",
            "who waited 200 ms is told so while there is still time to go elsewhere; nothing is done for the dead",
            load,
            switches((0, [slow])),
            _swept,
            brokers=(pace,),
            options=once,
            events=("thread_dump",),
        ),
        Plan(
            "fast failure, retry to a second broker",
            "cure",
            "the refusal arrives in time, SYSTEM_BUSY is retried, the other broker takes the message",
            load,
            switches((0, [slow])),
            lambda measured: [provoked(measured), all_delivered(measured), _swept_at_broker(measured)],
            brokers=(pace, pace),
            options=Options(timeout_ms=timeout_ms, retry_times=2),
        ),
        Plan(
            "group append",
            "cure",
            "the broker takes all that waits in one drain (send_drain_max=4096, the default): one append for all",
            load,
            switches((0, [slow])),
            lambda measured: [provoked(measured), all_delivered(measured)],
            options=once,
        ),
    ]


def _timed_out(measured: Measured) -> list[Check]:
    count, timed_out = len(measured.sends), measured.timed_out
    return [
        provoked(measured),
        expect(f"at least {LEAST:.0%} of the clients time out", timed_out >= LEAST * count, f"{timed_out / count:.1%}"),
        expect(
            "what timed out is stored all the same",
            measured.for_nobody >= LEAST * timed_out,
            f"{measured.for_nobody:,} messages",
        ),
    ]


def _swept(measured: Measured) -> list[Check]:
    count, swept = len(measured.sends), measured.told(SWEPT)
    return [
        provoked(measured),
        expect(f"at least {LEAST:.0%} are told {SWEPT}", swept >= LEAST * count, f"{swept / count:.1%}"),
        expect("no client times out", measured.timed_out == 0, measured.timed_out),
        expect("nothing is stored for nobody", measured.for_nobody == 0, measured.for_nobody),
    ]


def _swept_at_broker(measured: Measured) -> Check:
    retried = sum(1 for send in measured.sends if send.attempts > 1)
    return expect("sends are delivered by a second attempt", retried > 0, retried)
