"""``[REJECTREQUEST]``: one text, two causes.

Lives here: the three runs.
"""

from typing import Final

from pocketmq.cli.scenario.harness.load import Options
from pocketmq.cli.scenario.harness.phase import Measured, Plan, all_delivered, expect, provoked
from pocketmq.cli.scenario.incidents.pcbusy import POOL, REJECT, stall
from pocketmq.cli.scenario.report.report import Check

CURE: Final = (
    "look at the cause beside the text. page_cache_busy: the write-buffer pool or a second broker. no_write_buffer: "
    "more buffers (transient_store_pool_size, 5 by default), or a disk that takes commits as fast as they come"
)
PRICE: Final = (
    "each buffer is locked memory of one segment (1 GiB by default); its uncommitted part dies with the process"
)
BUFFERS: Final = "store.transient_store_pool_size"


def plans(quick: bool) -> list[Plan]:
    """Return the runs: the same load each time."""
    stalled = stall(quick)
    once = Options(timeout_ms=stalled.timeout_ms)
    return [
        Plan(
            "page cache busy",
            "fault",
            "the append lock has been held for longer than the limit: refused at admission, nothing is queued",
            stalled.load,
            stalled.switches,
            lambda measured: [provoked(measured), *_rejected(measured, "page_cache_busy")],
            brokers=(stalled.settings(),),
            options=once,
        ),
        Plan(
            "pool of one buffer",
            "fault",
            "the segment in use has the only buffer: none is free, so every send is refused, although the disk is well",
            stalled.load,
            (),
            lambda measured: [*_rejected(measured, "no_write_buffer"), _all_rejected(measured)],
            brokers=(stalled.settings({**POOL, BUFFERS: "1"}),),
            options=once,
            warm_up=False,
        ),
        Plan(
            "pool of five buffers",
            "cure",
            "the same load, and the stall of the first run on top",
            stalled.load,
            stalled.switches,
            lambda measured: [provoked(measured), all_delivered(measured)],
            brokers=(stalled.settings(POOL),),
            options=once,
        ),
    ]


def _rejected(measured: Measured, cause: str) -> list[Check]:
    rejected = [send for send in measured.failed if REJECT in send.text]
    causes = sorted({send.cause for send in rejected})
    return [
        expect(f"sends are told {REJECT}", len(rejected) > 0, len(rejected)),
        expect(f"with the cause {cause}", causes == [cause], ", ".join(causes) or "none"),
    ]


def _all_rejected(measured: Measured) -> Check:
    told = measured.told(REJECT)
    return expect("every one of them", told == len(measured.sends), f"{told} of {len(measured.sends)}")
