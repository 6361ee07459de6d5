"""``[OVERLOAD]``: the send queue is full.

Lives here: the three runs.
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

CURE: Final = "a second broker with SYSTEM_BUSY in the retry codes, and a client that sends slower when it is told so"
PRICE: Final = (
    "retries are load for the other broker, bounded by a budget; a longer queue costs memory and cures nothing"
)
CAPACITY_KEY: Final = "broker.send_thread_pool_queue_capacity"
OVERLOAD: Final = "[OVERLOAD]"
SWEPT: Final = "[TIMEOUT_CLEAN_QUEUE]"
LOG_LINE: Final = "too many requests and system thread pool busy, RejectedExecutionException"
STALL_MS: Final = 800
"""Of each append; below the 1,000 ms of a busy page cache: nothing but the queue refuses."""


def plans(quick: bool) -> list[Plan]:
    """Return the runs: the same burst onto the same slow disk each time."""
    capacity = 100 if quick else 200
    load = Load(burst=800 if quick else 3000, rate=50, seconds=1 if quick else 2)
    slow = switches((0, [{**APPENDS, "delay_ms": STALL_MS}]))
    short = {CAPACITY_KEY: str(capacity)}
    once = Options()
    return [
        Plan(
            f"queue of {capacity:,}",
            "fault",
            "the queue is full while the appends are slow: what does not fit is refused at once",
            load,
            slow,
            lambda measured: _overloaded(measured, capacity),
            brokers=(short,),
            options=once,
            events=(LOG_LINE,),
        ),
        Plan(
            "queue of 10,000",
            "bad cure",
            "all fit into the queue, wait their 200 ms, and are refused then",
            load,
            slow,
            _later,
            brokers=({CAPACITY_KEY: "10000"},),
            options=once,
            events=(LOG_LINE,),
        ),
        Plan(
            "retry to a second broker",
            "cure",
            "what one refuses, the other takes",
            load,
            slow,
            lambda measured: [provoked(measured), all_delivered(measured)],
            brokers=(short, {CAPACITY_KEY: "10000"}),
            options=Options(retry_times=2),
            events=(LOG_LINE,),
        ),
    ]


def _overloaded(measured: Measured, capacity: int) -> list[Check]:
    told = measured.told(OVERLOAD)
    lines = len(measured.watches[0].lines(LOG_LINE))
    return [
        provoked(measured),
        expect(f"what does not fit is told {OVERLOAD}", told >= capacity // 2, told),
        expect("the broker's log says so", lines > 0, f"{lines} lines"),
        expect("nothing is stored for nobody", measured.for_nobody == 0, measured.for_nobody),
    ]


def _later(measured: Measured) -> list[Check]:
    told, swept = measured.told(OVERLOAD), measured.told(SWEPT)
    return [
        provoked(measured),
        expect(f"nobody is told {OVERLOAD} any more", told == 0, told),
        expect(f"but most are told {SWEPT}", swept > len(measured.sends) // 2, swept),
    ]
