"""``[PCBUSY_CLEAN_QUEUE]``, ``[REJECTREQUEST]``: an append that stalls, two bad cures and two good ones.

Lives here: the five runs, and the stall, which other scenarios share.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final

from pocketmq.cli.scenario.harness.disk import stalls
from pocketmq.cli.scenario.harness.load import Load, Options
from pocketmq.cli.scenario.harness.phase import (
    Measured,
    Plan,
    Settings,
    Switch,
    all_delivered,
    expect,
    never_refused_with,
    none,
    refused_with,
    retried,
    some,
    switches,
)
from pocketmq.cli.scenario.knobs import OWN, Knobs
from pocketmq.cli.scenario.report.report import Check

CURE: Final = (
    "the write-buffer pool (transient_store_pool_enable): appends go to memory and a thread takes the stall; or a "
    "second broker with SYSTEM_BUSY in the retry codes"
)
PRICE: Final = (
    "the pool loses what is not committed when the machine dies (see pool-loss) and takes transient_store_pool_size "
    "segments of locked memory; a second broker is a second machine"
)
BUSY_KEY: Final = "store.os_page_cache_busy_timeout_mills"
POOL: Final[Settings] = {
    "store.transient_store_pool_enable": "true",
    "store.transient_store_pool_size": "5",
    "store.transient_store_pool_buffer_size": str(8 << 20),  # 40 MiB: a container's shared memory often has 64
}
PCBUSY: Final = "[PCBUSY_CLEAN_QUEUE]"
REJECT: Final = "[REJECTREQUEST]"
SWEPT: Final = "[TIMEOUT_CLEAN_QUEUE]"


@dataclass(frozen=True, slots=True)
class Stall:
    """One append (with the pool: one write of the commit thread) takes ``stall_ms``; sends go on all the time."""

    begins_s: float
    stall_ms: int
    load: Load
    timeout_ms: int
    busy_ms: int
    """``os_page_cache_busy_timeout_mills``: 1,000 is RocketMQ's default and ours; less with --quick."""

    knobs: Knobs = OWN

    @property
    def switches(self) -> tuple[Switch, ...]:
        """The disk of the first broker stalls, once: an append, or a commit where there is a pool."""
        return switches(*stalls(self.knobs, self.begins_s, self.stall_ms))

    def settings(self, more: Settings | None = None) -> dict[str, str]:
        """Return the settings that differ from the defaults, with ``more``."""
        return ({} if self.busy_ms == 1000 else {BUSY_KEY: str(self.busy_ms)}) | dict(more or {})


def stall(quick: bool, knobs: Knobs = OWN) -> Stall:
    """Return the stall: 3.5 s, longer than a client waits; 1.2 s with --quick."""
    stall_ms, timeout_ms, busy_ms = (1200, 800, 400) if quick else (3500, 3000, 1000)
    return Stall(
        0.1 if quick else 0.5,
        knobs.get("stall_ms", stall_ms),
        Load.chosen(knobs, rate=100, seconds=1.5 if quick else 5),
        knobs.get("timeout_ms", timeout_ms),
        busy_ms,
        knobs,
    )


def plans(quick: bool, knobs: Knobs = OWN) -> list[Plan]:
    """Return the runs: the same load and the same stall each time."""
    stalled = stall(quick, knobs)
    raised = {BUSY_KEY: "600000"}
    run = partial(Plan, load=stalled.load, switches=stalled.switches, options=Options(timeout_ms=stalled.timeout_ms))
    return [
        run(
            "as it is",
            "fault",
            "after the limit the broker empties the send queue, and from then on refuses sends at admission",
            checks=(refused_with(PCBUSY), refused_with(REJECT), none("no refused send is stored", _refused_but_stored)),
            brokers=(stalled.settings(),),
            events=("thread_dump", "page_cache_busy"),
        ),
        run(
            "limit raised to 600 s",
            "bad cure",
            "the texts are gone, the stall is not: sends now wait their 200 ms before they are refused",
            checks=(never_refused_with(PCBUSY), never_refused_with(REJECT), refused_with(SWEPT)),
            brokers=(raised,),
        ),
        run(
            "limit raised, fast failure off",
            "bad cure",
            "no send is refused: all wait behind the stall until their clients give up, and are stored without a "
            "receipt",
            checks=(
                some("clients time out", lambda measured: measured.timed_out),
                some("their messages are stored", lambda measured: measured.without_receipt),
                partial(_late, stalled),
            ),
            brokers=(raised | {"broker.broker_fast_failure_enable": "false"},),
        ),
        run(
            "write-buffer pool",
            "cure",
            "appends go to a buffer in memory; the stall meets the commit thread, and no send waits for that",
            checks=(all_delivered, partial(_not_stalled, stalled)),
            brokers=(stalled.settings(POOL),),
        ),
        run(
            "retry to a second broker",
            "cure",
            "the other broker takes the sends that the stalled one refuses",
            checks=(_nearly_all, retried),
            brokers=(stalled.settings(), stalled.settings()),
            options=Options(timeout_ms=stalled.timeout_ms, retry_times=2),
        ),
    ]


def _refused_but_stored(measured: Measured) -> int:
    return sum(1 for send in measured.failed if send.answered and measured.stored[send.body])


def _late(stalled: Stall, measured: Measured) -> Check:
    slowest = measured.latency(delivered=True).max_ms
    what = "the slowest receipt takes more than half of the client's timeout"
    return expect(what, slowest > stalled.timeout_ms / 2, f"{slowest:,.0f} ms")


def _not_stalled(stalled: Stall, measured: Measured) -> Check:
    slowest = measured.latency(delivered=True).max_ms
    return expect("no send waits for the stall", slowest < stalled.stall_ms / 2, f"slowest {slowest:,.0f} ms")


def _nearly_all(measured: Measured) -> Check:
    """The one append that is stuck holds up to two sends, which get no answer in time."""
    count, failed = len(measured.sends), len(measured.failed)
    return expect("every send but those in the stuck append is delivered", failed <= 2, f"{count - failed} of {count}")
