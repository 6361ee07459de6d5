"""The retry codes of the producer: one busy broker, one healthy one.

Lives here: the three runs.
"""

from typing import Final

from pocketmq.cli.scenario.harness.cluster import APPENDS
from pocketmq.cli.scenario.harness.load import Load, Options
from pocketmq.cli.scenario.harness.phase import (
    Checks,
    Measured,
    Plan,
    all_delivered,
    expect,
    provoked,
    switches,
)
from pocketmq.cli.scenario.report.report import Check
from pocketmq.client import RETRY_RESPONSE_CODES_4_9
from pocketmq.remoting.codes import ResponseCode

CURE: Final = (
    "SYSTEM_BUSY among the retry codes: the default since 5.3; "
    "producer.add_retry_response_code(ResponseCode.SYSTEM_BUSY) where they were set otherwise"
)
PRICE: Final = "blind retries amplify an overload: the producer has a retry budget, backoff, and honors retry-after"
APPEND_MS: Final = 100


def plans(quick: bool) -> list[Plan]:
    """Return the runs: the first broker appends in 100 ms, one request a drain; the second is well."""
    load = Load(rate=100, seconds=1.5 if quick else 4)
    slow = switches((0, [{**APPENDS, "delay_ms": APPEND_MS}]))
    pace = {"broker.send_drain_max": "1"}
    old = frozenset(map(int, RETRY_RESPONSE_CODES_4_9))

    def plan(name: str, role: str, says: str, options: Options, checks: Checks) -> Plan:
        return Plan(name, role, says, load, slow, checks, brokers=(pace, {}), options=options)

    return [
        plan(
            "retry codes of 4.9",
            "fault",
            "SYSTEM_BUSY is not in the set: the loop ends with an exception at the first busy answer",
            Options(retry_times=2, retry_response_codes=old),
            _given_up,
        ),
        plan(
            "retry codes of 5.3",
            "cure",
            "SYSTEM_BUSY is in the default set",
            Options(retry_times=2),
            _delivered,
        ),
        plan(
            "codes of 4.9 and addRetryResponseCode",
            "cure",
            "the same by hand, as 4.9.2 allows it",
            Options(retry_times=2, retry_response_codes=old, added_codes=(int(ResponseCode.SYSTEM_BUSY),)),
            _delivered,
        ),
    ]


def _given_up(measured: Measured) -> list[Check]:
    busy = [send for send in measured.failed if send.text.startswith("2 SYSTEM_BUSY")]
    attempts = max((send.attempts for send in busy), default=0)
    return [
        provoked(measured),
        expect("sends end with SYSTEM_BUSY", len(busy) > 0, len(busy)),
        expect("after one attempt, with a healthy broker beside", attempts == 1, f"{attempts} attempts at most"),
    ]


def _delivered(measured: Measured) -> list[Check]:
    retried = sum(1 for send in measured.delivered if send.attempts > 1)
    return [
        provoked(measured),
        all_delivered(measured),
        expect("the busy ones by another attempt", retried > 0, retried),
    ]
