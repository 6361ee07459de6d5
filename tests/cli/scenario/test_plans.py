"""The plans of the scenarios; no process starts."""

import importlib
from collections import Counter

import msgspec
import pytest

from pocketmq.cli.daemon.daemon import load_settings
from pocketmq.cli.scenario.catalog import CATALOG, find
from pocketmq.cli.scenario.harness.cluster import SMALL_STORE
from pocketmq.cli.scenario.harness.load import Load, Options
from pocketmq.cli.scenario.harness.phase import Measured, Plan, all_delivered, nothing_invented, nothing_lost, to_phase
from pocketmq.cli.scenario.report.report import Send
from pocketmq.client import RETRY_RESPONSE_CODES_4_9
from pocketmq.remoting.codes import ResponseCode
from pocketmq.testing.faults import FaultRules

NAMES = [scenario.name for scenario in CATALOG]


def plans_of(name: str, quick: bool) -> list[Plan]:
    module = importlib.import_module(f"pocketmq.cli.scenario.incidents.{name.replace('-', '_')}")
    found: list[Plan] = module.plans(quick)
    return found


def test_all_scenarios_are_there() -> None:
    """There are twelve names; an unknown one is not found."""
    assert set(NAMES) == {
        "timeout-clean-queue",
        "pcbusy",
        "pc-synchronized",
        "reject-request",
        "too-many-requests",
        "retry-codes",
        "pool-loss",
        "ordered-lock-stuck",
        "slave-readonly",
        "slave-killed",
        "slave-frozen",
        "network-cut",
    }
    assert find("nonsense") is None


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_shows_a_fault_and_a_cure_with_valid_settings_and_rules(name: str, quick: bool) -> None:
    """The daemon accepts every setting, the disk every rule; the names of the runs differ."""
    plans = plans_of(name, quick)
    assert {"fault", "cure"} <= {plan.role for plan in plans} <= {"fault", "bad cure", "cure"}
    assert len({plan.name for plan in plans}) == len(plans)
    for plan in plans:
        assert plan.load.due_s()
        assert plan.says
        for broker in plan.brokers:
            flags = [f"{key}={value}" for key, value in {**SMALL_STORE, **broker}.items()]
            load_settings({}, None, flags, {})
        for switch in plan.switches:
            msgspec.json.decode(msgspec.json.encode({"rules": switch.rules}), type=FaultRules)
            assert switch.broker < len(plan.brokers)
            assert switch.at_s < max(plan.load.due_s()) + 0.001
    scenario = find(name)
    assert scenario is not None
    run, cure, price = scenario.load()
    assert callable(run)
    assert cure
    assert price


def test_the_load_is_due_at_fixed_times() -> None:
    """The burst comes first, then the rate, whatever happened to earlier sends."""
    load = Load(burst=3, rate=10, seconds=0.5)
    assert load.due_s() == [0.0, 0.0, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
    assert str(load) == "3 sends at once, then 10 a second for 0.5 s"
    assert str(Load(rate=100, seconds=5)) == "100 a second for 5 s"


def test_options_reach_the_producer_and_the_report() -> None:
    """The old codes with one added are set, and reported."""
    options = Options(
        retry_times=2,
        retry_response_codes=frozenset(map(int, RETRY_RESPONSE_CODES_4_9)),
        added_codes=(int(ResponseCode.SYSTEM_BUSY),),
        more={"linger_ms": 5},
    )
    producer = options.producer("127.0.0.1:1")
    assert ResponseCode.SYSTEM_BUSY in producer.retry.retry_response_codes
    assert ResponseCode.GO_AWAY not in producer.retry.retry_response_codes
    assert producer.linger_ms == 5
    words = options.words()
    assert words["producer.add_retry_response_code"] == "2"
    assert words["producer.linger_ms"] == "5"
    assert "producer.retry_response_codes" not in Options().words()


def measured() -> Measured:
    sends = [
        Send(0.0, 5, True, "SEND_OK", stored="yes", body=b"1"),
        Send(0.1, 5, True, "SEND_OK", stored="yes", body=b"2"),
        Send(0.2, 3000, False, "no answer", stored="unknown", body=b"3", answered=False),
        Send(0.3, 200, False, "2 SYSTEM_BUSY: [TIMEOUT_CLEAN_QUEUE]broker busy", "queue_timeout", "no", body=b"4"),
    ]
    return Measured(sends, [], Counter({b"1": 2, b"3": 1, b"9": 1}))


def test_what_was_stored_is_compared_with_what_was_acknowledged() -> None:
    """Lost, invented, duplicate, and stored without a receipt: each is counted."""
    found = measured()
    assert (found.lost, found.duplicates, found.without_receipt, found.timed_out) == (1, 1, 1, 1)
    assert not nothing_lost(found).ok
    assert not nothing_invented(found).ok
    assert not all_delivered(found).ok
    assert found.failed_with("[TIMEOUT_CLEAN_QUEUE]") == 1


def test_a_lost_message_fails_every_run_but_those_about_loss() -> None:
    """Each plan has the check that does not allow losses."""
    names = {
        may: [
            check.what
            for check in to_phase(
                Plan("p", "fault", "s", Load(burst=1), acknowledged_may_be_lost=may), measured()
            ).checks
        ]
        for may in (False, True)
    }
    assert "every acknowledged message can be read" in names[False]
    assert "every acknowledged message can be read" not in names[True]
    assert all("nothing can be read that was not sent" in each for each in names.values())
