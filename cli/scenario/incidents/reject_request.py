"""``[REJECTREQUEST]``: one text, two causes.

Lives here: the three runs.
"""

from functools import partial
from typing import Final

from pocketmq.cli.scenario.harness.load import Options
from pocketmq.cli.scenario.harness.phase import Measured, Plan, all_delivered, expect, refused_with
from pocketmq.cli.scenario.incidents.pcbusy import POOL, REJECT, stall
from pocketmq.cli.scenario.knobs import OWN, Knobs
from pocketmq.cli.scenario.report.report import Check

CURE: Final = (
    "check the cause beside the text. page_cache_busy: the write-buffer pool or a second broker. no_write_buffer: "
    "more buffers (transient_store_pool_size, 5 by default), or a disk that commits as fast as messages arrive"
)
PRICE: Final = (
    "each buffer is locked memory of one segment (1 GiB by default); its uncommitted part is lost with the process"
)
BUFFERS: Final = "store.transient_store_pool_size"


def plans(quick: bool, knobs: Knobs = OWN) -> list[Plan]:
    """Return the runs: the same load each time."""
    stalled = stall(quick, knobs)
    run = partial(Plan, load=stalled.load, options=Options(timeout_ms=stalled.timeout_ms))
    return [
        run(
            "page cache busy",
            "fault",
            "the append lock has been held for longer than the limit: sends are refused at admission, none is queued",
            switches=stalled.switches,
            checks=(refused_with(REJECT), partial(_cause, "page_cache_busy")),
            brokers=(stalled.settings(),),
        ),
        run(
            "pool of one buffer",
            "fault",
            "the segment in use has the only buffer: none is free, so every send is refused on a healthy disk",
            checks=(refused_with(REJECT), partial(_cause, "no_write_buffer"), _all_rejected),
            brokers=(stalled.settings({**POOL, BUFFERS: "1"}),),
            warm_up=False,
        ),
        run(
            "pool of five buffers",
            "cure",
            "the same load, and the stall of the first run on top",
            switches=stalled.switches,
            checks=(all_delivered,),
            brokers=(stalled.settings(POOL),),
        ),
    ]


def _cause(cause: str, measured: Measured) -> Check:
    causes = sorted({send.cause for send in measured.failed if REJECT in send.text})
    return expect(f"with the cause {cause}", causes == [cause], ", ".join(causes) or "none")


def _all_rejected(measured: Measured) -> Check:
    rejected = measured.failed_with(REJECT)
    return expect("every one of them", rejected == len(measured.sends), f"{rejected} of {len(measured.sends)}")
