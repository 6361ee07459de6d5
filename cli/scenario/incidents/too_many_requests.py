"""``[OVERLOAD]``: the send queue is full.

Lives here: the three runs.
"""

from functools import partial
from typing import Final

from pocketmq.cli.scenario.harness.disk import slow
from pocketmq.cli.scenario.harness.load import Load, Options
from pocketmq.cli.scenario.harness.phase import (
    Measured,
    Plan,
    all_delivered,
    expect,
    never_refused_with,
    none,
    refused_with,
    switches,
)
from pocketmq.cli.scenario.knobs import OWN, Knobs
from pocketmq.cli.scenario.report.report import Check

CURE: Final = "a second broker with SYSTEM_BUSY in the retry codes, and a client that slows down when it is refused"
PRICE: Final = (
    "retries are load for the other broker, bounded by a budget; a longer queue costs memory and cures nothing"
)
CAPACITY_KEY: Final = "broker.send_thread_pool_queue_capacity"
OVERLOAD: Final = "[OVERLOAD]"
SWEPT: Final = "[TIMEOUT_CLEAN_QUEUE]"
LOG_LINE: Final = "too many requests and system thread pool busy, RejectedExecutionException"
STALL_MS: Final = 800
"""Of each append; below the 1,000 ms of a busy page cache: only the queue refuses."""


def plans(quick: bool, knobs: Knobs = OWN) -> list[Plan]:
    """Return the runs: the same burst onto the same slow disk each time."""
    capacity = 100 if quick else 200
    load = Load.chosen(knobs, burst=800 if quick else 3000, rate=50, seconds=1 if quick else 2)
    options = partial(Options, timeout_ms=knobs.get("timeout_ms", 3000))
    short, long = {CAPACITY_KEY: str(capacity)}, {CAPACITY_KEY: "10000"}
    run = partial(Plan, load=load, switches=switches((0, slow(knobs, STALL_MS))), options=options(), events=(LOG_LINE,))
    return [
        run(
            f"queue of {capacity:,}",
            "fault",
            "the queue is full while the appends are slow: sends that do not fit are refused at once",
            checks=(
                refused_with(OVERLOAD, capacity // 2),
                _logged,
                none("no message is stored without a receipt", lambda measured: measured.without_receipt),
            ),
            brokers=(short,),
        ),
        run(
            "queue of 10,000",
            "bad cure",
            "all fit into the queue, wait their 200 ms, and are refused then",
            checks=(never_refused_with(OVERLOAD), _swept),
            brokers=(long,),
        ),
        run(
            "retry to a second broker",
            "cure",
            "the other broker takes the sends that the first one refuses",
            checks=(all_delivered,),
            brokers=(short, long),
            options=options(retry_times=2),
        ),
    ]


def _logged(measured: Measured) -> Check:
    lines = len(measured.watches[0].lines(LOG_LINE))
    return expect("the broker's log says so", lines > 0, f"{lines} lines")


def _swept(measured: Measured) -> Check:
    swept = measured.failed_with(SWEPT)
    return expect(f"but most are refused with {SWEPT}", swept > len(measured.sends) // 2, swept)
