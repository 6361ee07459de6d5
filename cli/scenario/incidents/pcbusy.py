"""``[PCBUSY_CLEAN_QUEUE]``, ``[REJECTREQUEST]``: an append that stalls, two bad cures and two good ones.

Lives here: the five runs, the stall that other scenarios use, too.
"""

from dataclasses import dataclass
from typing import Final

from pocketmq.cli.scenario.harness.cluster import APPENDS
from pocketmq.cli.scenario.harness.load import Load, Options
from pocketmq.cli.scenario.harness.phase import (
    Measured,
    Plan,
    Settings,
    Switch,
    all_delivered,
    expect,
    provoked,
    switches,
)
from pocketmq.cli.scenario.report.report import Check

CURE: Final = (
    "the write-buffer pool (transient_store_pool_enable): appends go to memory and a thread takes the stall; or a "
    "second broker with SYSTEM_BUSY in the retry codes"
)
PRICE: Final = (
    "the pool loses what is not committed when the process dies (see pool-loss) and takes transient_store_pool_size "
    "segments of locked memory; a second broker is a second machine"
)
BUSY_KEY: Final = "store.os_page_cache_busy_timeout_mills"
POOL: Final[Settings] = {"store.transient_store_pool_enable": "true", "store.transient_store_pool_size": "5"}
PCBUSY: Final = "[PCBUSY_CLEAN_QUEUE]"
REJECT: Final = "[REJECTREQUEST]"
SWEPT: Final = "[TIMEOUT_CLEAN_QUEUE]"


@dataclass(frozen=True, slots=True)
class Stall:
    """One append (or the commit's write, with the pool) takes ``stall_ms``; sends go on all the time."""

    begins_s: float
    stall_ms: int
    load: Load
    timeout_ms: int
    busy_ms: int
    """``os_page_cache_busy_timeout_mills``: 1,000 is RocketMQ's and ours; less with --quick."""

    @property
    def switches(self) -> tuple[Switch, ...]:
        """The disk of the first broker stalls, once: an append, or a commit where there is a pool."""
        once = {"delay_ms": self.stall_ms, "count": 1}
        return switches((self.begins_s, [{**APPENDS, **once}]))

    def settings(self, more: Settings | None = None) -> dict[str, str]:
        """Return what differs from the defaults."""
        return ({} if self.busy_ms == 1000 else {BUSY_KEY: str(self.busy_ms)}) | dict(more or {})


def stall(quick: bool) -> Stall:
    """Return the stall: 3.5 s, so longer than a client waits; 1.2 s with --quick."""
    if quick:
        return Stall(0.1, 1200, Load(rate=100, seconds=1.5), 800, 400)
    return Stall(0.5, 3500, Load(rate=100, seconds=5), 3000, 1000)


def plans(quick: bool) -> list[Plan]:
    """Return the runs: the same load and the same stall each time."""
    stalled = stall(quick)
    once = Options(timeout_ms=stalled.timeout_ms)
    raised = {BUSY_KEY: "600000"}
    return [
        Plan(
            "as it is",
            "fault",
            "after the limit the send queue is emptied, and from then on sends are refused at admission",
            stalled.load,
            stalled.switches,
            _refused,
            brokers=(stalled.settings(),),
            options=once,
            events=("thread_dump", "page_cache_busy"),
        ),
        Plan(
            "limit raised to 600 s",
            "bad cure",
            "the texts are gone, the stall is not: sends now wait their 200 ms before they are refused",
            stalled.load,
            stalled.switches,
            _only_swept,
            brokers=(raised,),
            options=once,
        ),
        Plan(
            "limit raised, fast failure off",
            "bad cure",
            "nothing is refused: sends wait behind the stall until their clients give up, and are stored for nobody",
            stalled.load,
            stalled.switches,
            lambda measured: _hidden(measured, stalled),
            brokers=(raised | {"broker.broker_fast_failure_enable": "false"},),
            options=once,
        ),
        Plan(
            "write-buffer pool",
            "cure",
            "appends go to a buffer in memory; the stall meets the commit thread, and nobody waits for that",
            stalled.load,
            stalled.switches,
            lambda measured: [provoked(measured), all_delivered(measured), _not_stalled(measured, stalled)],
            brokers=(stalled.settings(POOL),),
            options=once,
        ),
        Plan(
            "retry to a second broker",
            "cure",
            "what the stalled broker refuses, the other one takes",
            stalled.load,
            stalled.switches,
            lambda measured: [provoked(measured), *_nearly_all(measured)],
            brokers=(stalled.settings(), stalled.settings()),
            options=Options(timeout_ms=stalled.timeout_ms, retry_times=2),
        ),
    ]


def _refused(measured: Measured) -> list[Check]:
    cleaned, rejected = measured.told(PCBUSY), measured.told(REJECT)
    return [
        provoked(measured),
        expect(f"sends in the queue are told {PCBUSY}", cleaned > 0, cleaned),
        expect(f"sends that come later are told {REJECT}", rejected > 0, rejected),
        expect("nothing that was refused is stored", _refused_but_stored(measured) == 0, _refused_but_stored(measured)),
    ]


def _refused_but_stored(measured: Measured) -> int:
    return sum(1 for send in measured.failed if send.answered and measured.stored[send.body])


def _only_swept(measured: Measured) -> list[Check]:
    busy, swept = measured.told(PCBUSY) + measured.told(REJECT), measured.told(SWEPT)
    return [
        provoked(measured),
        expect(f"nobody is told {PCBUSY} or {REJECT} any more", busy == 0, busy),
        expect(f"but they are told {SWEPT}", swept > 0, swept),
    ]


def _hidden(measured: Measured, stalled: Stall) -> list[Check]:
    slowest = measured.latency(delivered=True).max_ms
    return [
        provoked(measured),
        expect("clients time out", measured.timed_out > 0, measured.timed_out),
        expect("what timed out is stored", measured.for_nobody > 0, f"{measured.for_nobody:,} messages"),
        expect(
            "who gets a receipt waited for most of the client's time",
            slowest > stalled.timeout_ms / 2,
            f"{slowest:,.0f} ms",
        ),
    ]


def _not_stalled(measured: Measured, stalled: Stall) -> Check:
    slowest = measured.latency(delivered=True).max_ms
    return expect("no send waits for the stall", slowest < stalled.stall_ms / 2, f"slowest {slowest:,.0f} ms")


def _nearly_all(measured: Measured) -> list[Check]:
    """The one send whose append is stuck has no answer in time; whoever it belongs to may see a time-out."""
    count, failed = len(measured.sends), len(measured.failed)
    retried = sum(1 for send in measured.delivered if send.attempts > 1)
    return [
        expect("every send but those in the stuck append is delivered", failed <= 2, f"{count - failed} of {count}"),
        expect("sends are delivered by another attempt", retried > 0, retried),
    ]
