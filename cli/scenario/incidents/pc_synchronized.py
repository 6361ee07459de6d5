"""``[PC_SYNCHRONIZED]``: two send threads, one append lock.

Lives here: the four runs.
"""

from functools import partial
from typing import Final

from pocketmq.cli.scenario.harness.load import Options
from pocketmq.cli.scenario.harness.phase import (
    Measured,
    Plan,
    Settings,
    all_delivered,
    expect,
    none,
    refused_with,
)
from pocketmq.cli.scenario.incidents.pcbusy import POOL, stall
from pocketmq.cli.scenario.knobs import OWN, Knobs
from pocketmq.cli.scenario.report.report import Check

CURE: Final = (
    "the write-buffer pool, or a second broker with SYSTEM_BUSY in the retry codes; one send thread (the default) does "
    "not cause this text, since no thread waits for the lock: sends are refused in the queue and at admission instead"
)
PRICE: Final = (
    "as in pcbusy: the pool loses what is not committed when the process dies; another broker is another machine"
)
TEXT: Final = "[PC_SYNCHRONIZED]"
TWO: Final[Settings] = {"broker.send_message_thread_pool_nums": "2"}


def plans(quick: bool, knobs: Knobs = OWN) -> list[Plan]:
    """Return the runs: two send threads, the same load and the same stall each time."""
    stalled = stall(quick, knobs)
    two = stalled.settings(TWO)
    run = partial(Plan, load=stalled.load, switches=stalled.switches, options=Options(timeout_ms=stalled.timeout_ms))
    not_stored = none("none of them is stored", _stored)
    return [
        run(
            "two send threads",
            "fault",
            "the second thread waits for the lock until its holder has had it too long; the broker then empties its "
            "queue and rejects new sends",
            checks=(refused_with(TEXT), _system_busy, not_stored),
            brokers=(two,),
            events=("thread_dump",),
        ),
        run(
            "two send threads, fast failure off",
            "fault",
            "the put is the last line of defense: without expiry it answers all waiting sends",
            checks=(refused_with(TEXT, 5), _system_busy, not_stored),
            brokers=(two | {"broker.broker_fast_failure_enable": "false"},),
        ),
        run(
            "write-buffer pool",
            "cure",
            "no thread holds the lock while the disk stalls",
            checks=(all_delivered,),
            brokers=({**two, **POOL},),
        ),
        run(
            "retry to a second broker",
            "cure",
            "the text has code 2 (5.3), which is retried",
            checks=(_nearly_all,),
            brokers=(two, two),
            options=Options(timeout_ms=stalled.timeout_ms, retry_times=2),
        ),
    ]


def _system_busy(measured: Measured) -> Check:
    refused = measured.failed_with(TEXT)
    coded = sum(1 for send in measured.failed if TEXT in send.text and send.text.startswith("2 SYSTEM_BUSY"))
    return expect("with code 2, SYSTEM_BUSY", coded == refused, f"{coded} of {refused}")


def _stored(measured: Measured) -> int:
    return sum(1 for send in measured.failed if TEXT in send.text and measured.stored[send.body])


def _nearly_all(measured: Measured) -> Check:
    return expect("at most the sends in the stuck append fail", len(measured.failed) <= 2, len(measured.failed))
