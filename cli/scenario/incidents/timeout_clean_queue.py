"""``[TIMEOUT_CLEAN_QUEUE]``: a queue of sends that the broker cannot serve in time.

Lives here: the four runs.
"""

from functools import partial
from typing import Final

from pocketmq.cli.scenario.harness.disk import slow
from pocketmq.cli.scenario.harness.load import Load, Options
from pocketmq.cli.scenario.harness.phase import Measured, Plan, all_delivered, expect, none, retried, switches
from pocketmq.cli.scenario.knobs import OWN, Knobs
from pocketmq.cli.scenario.report.report import Check

CURE: Final = (
    "fast failure (on by default) with SYSTEM_BUSY in the producer's retry codes (default since 5.3) and a second "
    "broker; or group append (the default of send_drain_max): the broker appends all waiting sends at once"
)
PRICE: Final = (
    "retries multiply load: backoff, retry-after and the retry budget bound them; with group append up to one drain of "
    "requests waits for one append, longer than its limit if that append hangs"
)
APPEND_MS: Final = 100
SWEPT: Final = "[TIMEOUT_CLEAN_QUEUE]"
LEAST: Final = 0.85
"""Share of the sends that must end as the run predicts; the broker serves the others before or after the flood."""


def plans(quick: bool, knobs: Knobs = OWN) -> list[Plan]:
    """Return the runs: the same load and the same slow disk each time."""
    load = Load.chosen(knobs, burst=300 if quick else 2000, rate=20, seconds=1 if quick else 4)
    timeout_ms = knobs.get("timeout_ms", 1000 if quick else 3000)
    append_ms = knobs.get("append_ms", APPEND_MS)
    pace = {"broker.send_drain_max": "1"}
    run = partial(
        Plan, load=load, switches=switches((0, slow(knobs, APPEND_MS))), options=Options(timeout_ms=timeout_ms)
    )
    return [
        run(
            "without fast failure",
            "fault",
            f"every send waits its turn of {append_ms} ms; nearly all clients give up first; their messages are "
            "stored later",
            checks=(_time_out, _stored_later),
            brokers=({**pace, "broker.broker_fast_failure_enable": "false"},),
        ),
        run(
            "with fast failure",
            "fault",
            "after 200 ms a waiting send is refused, while its client can still try elsewhere; the broker does no work "
            "for clients that have given up",
            checks=(
                _swept,
                none("no client times out", lambda measured: measured.timed_out),
                none("no message is stored without a receipt", lambda measured: measured.without_receipt),
            ),
            brokers=(pace,),
            events=("thread_dump",),
        ),
        run(
            "fast failure, retry to a second broker",
            "cure",
            "the refusal arrives in time, SYSTEM_BUSY is retried, the other broker takes the message",
            checks=(all_delivered, retried),
            brokers=(pace, pace),
            options=Options(timeout_ms=timeout_ms, retry_times=2),
        ),
        run(
            "group append",
            "cure",
            "the broker takes all waiting sends in one drain (send_drain_max=4096, the default): one append for all",
            checks=(all_delivered,),
        ),
    ]


def _time_out(measured: Measured) -> Check:
    share = measured.timed_out / len(measured.sends)
    return expect(f"at least {LEAST:.0%} of the clients time out", share >= LEAST, f"{share:.1%}")


def _stored_later(measured: Measured) -> Check:
    stored = measured.without_receipt
    return expect(
        "their messages are stored all the same", stored >= LEAST * measured.timed_out, f"{stored:,} messages"
    )


def _swept(measured: Measured) -> Check:
    share = measured.failed_with(SWEPT) / len(measured.sends)
    return expect(f"at least {LEAST:.0%} are refused with {SWEPT}", share >= LEAST, f"{share:.1%}")
