"""The retry codes of the producer: one busy broker, one healthy one.

Lives here: the three runs.
"""

from functools import partial
from typing import Final

from pocketmq.cli.scenario.harness.disk import slow
from pocketmq.cli.scenario.harness.load import Load, Options
from pocketmq.cli.scenario.harness.phase import Measured, Plan, all_delivered, expect, retried, some, switches
from pocketmq.cli.scenario.knobs import OWN, Knobs
from pocketmq.cli.scenario.report.report import Check, Send
from pocketmq.client import RETRY_RESPONSE_CODES_4_9
from pocketmq.remoting.codes import ResponseCode

CURE: Final = (
    "SYSTEM_BUSY among the retry codes: the default since 5.3; "
    "producer.add_retry_response_code(ResponseCode.SYSTEM_BUSY) where they were set otherwise"
)
PRICE: Final = "blind retries amplify an overload: the producer has a retry budget, backoff, and honors retry-after"
APPEND_MS: Final = 100


def plans(quick: bool, knobs: Knobs = OWN) -> list[Plan]:
    """Return the runs: the first broker appends in 100 ms, one request a drain; the second is healthy."""
    load = Load.chosen(knobs, rate=100, seconds=1.5 if quick else 4)
    options = partial(Options, timeout_ms=knobs.get("timeout_ms", 3000))
    old = frozenset(map(int, RETRY_RESPONSE_CODES_4_9))
    run = partial(
        Plan, load=load, switches=switches((0, slow(knobs, APPEND_MS))), brokers=({"broker.send_drain_max": "1"}, {})
    )
    return [
        run(
            "retry codes of 4.9",
            "fault",
            "SYSTEM_BUSY is not in the set: the loop ends with an exception at the first busy answer",
            checks=(some("sends end with SYSTEM_BUSY", lambda measured: len(_busy(measured))), _one_attempt),
            options=options(retry_times=2, retry_response_codes=old),
        ),
        run(
            "retry codes of 5.3",
            "cure",
            "SYSTEM_BUSY is in the default set",
            checks=(all_delivered, retried),
            options=options(retry_times=2),
        ),
        run(
            "codes of 4.9 and addRetryResponseCode",
            "cure",
            "the same by hand, as 4.9.2 allows it",
            checks=(all_delivered, retried),
            options=options(retry_times=2, retry_response_codes=old, added_codes=(int(ResponseCode.SYSTEM_BUSY),)),
        ),
    ]


def _busy(measured: Measured) -> list[Send]:
    return [send for send in measured.failed if send.text.startswith("2 SYSTEM_BUSY")]


def _one_attempt(measured: Measured) -> Check:
    attempts = max((send.attempts for send in _busy(measured)), default=0)
    return expect("after one attempt, with a healthy broker beside", attempts == 1, f"{attempts} attempts at most")
