"""``[PC_SYNCHRONIZED]``: two send threads, one append lock.

Lives here: the four runs.
"""

from typing import Final

from pocketmq.cli.scenario.harness.load import Options
from pocketmq.cli.scenario.harness.phase import (
    Measured,
    Plan,
    Settings,
    all_delivered,
    expect,
    provoked,
)
from pocketmq.cli.scenario.incidents.pcbusy import POOL, stall
from pocketmq.cli.scenario.report.report import Check

CURE: Final = (
    "the write-buffer pool, or a second broker with SYSTEM_BUSY in the retry codes; one send thread (the default) does "
    "not show this text, since nobody waits for the lock: its sends are refused in the queue and at admission instead"
)
PRICE: Final = (
    "as in pcbusy: the pool loses what is not committed when the process dies; another broker is another machine"
)
TEXT: Final = "[PC_SYNCHRONIZED]"
TWO: Final[Settings] = {"broker.send_message_thread_pool_nums": "2"}


def plans(quick: bool) -> list[Plan]:
    """Return the runs: two send threads, the same load and the same stall each time."""
    stalled = stall(quick)
    once = Options(timeout_ms=stalled.timeout_ms)
    two = stalled.settings(TWO)
    return [
        Plan(
            "two send threads",
            "fault",
            "the second thread waits for the lock until its holder has had it too long; what waits in the "
            "queue is emptied, what comes is rejected",
            stalled.load,
            stalled.switches,
            lambda measured: _synchronized(measured, 1),
            brokers=(two,),
            options=once,
            events=("thread_dump",),
        ),
        Plan(
            "two send threads, fast failure off",
            "fault",
            "the put is the last line of defense: without expiry all that waited is answered there",
            stalled.load,
            stalled.switches,
            lambda measured: _synchronized(measured, 5),
            brokers=(two | {"broker.broker_fast_failure_enable": "false"},),
            options=once,
        ),
        Plan(
            "write-buffer pool",
            "cure",
            "nobody holds the lock while the disk stalls",
            stalled.load,
            stalled.switches,
            lambda measured: [provoked(measured), all_delivered(measured)],
            brokers=({**two, **POOL},),
            options=once,
        ),
        Plan(
            "retry to a second broker",
            "cure",
            "the text has code 2 (5.3), which is retried",
            stalled.load,
            stalled.switches,
            lambda measured: [
                provoked(measured),
                expect("at most the stuck append's sends fail", len(measured.failed) <= 2, len(measured.failed)),
            ],
            brokers=(two, two),
            options=Options(timeout_ms=stalled.timeout_ms, retry_times=2),
        ),
    ]


def _synchronized(measured: Measured, at_least: int) -> list[Check]:
    told = measured.told(TEXT)
    coded = sum(1 for send in measured.failed if TEXT in send.text and send.text.startswith("2 SYSTEM_BUSY"))
    stored = sum(1 for send in measured.failed if TEXT in send.text and measured.stored[send.body])
    return [
        provoked(measured),
        expect(f"at least {at_least} are told {TEXT}", told >= at_least, told),
        expect("with code 2, SYSTEM_BUSY", coded == told, f"{coded} of {told}"),
        expect("and none of them is stored", stored == 0, stored),
    ]
