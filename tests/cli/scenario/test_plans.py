"""The plans of the scenarios; no process starts."""

import dataclasses
import importlib
from collections import Counter
from typing import Any

import msgspec
import pytest

from pocketmq.cli.daemon.daemon import load_settings
from pocketmq.cli.scenario.catalog import CATALOG, find
from pocketmq.cli.scenario.harness.cluster import SMALL_STORE
from pocketmq.cli.scenario.harness.disk import APPENDS, for_good
from pocketmq.cli.scenario.harness.hold import lines
from pocketmq.cli.scenario.harness.load import Load, Options
from pocketmq.cli.scenario.harness.phase import Measured, Plan, all_delivered, nothing_invented, nothing_lost, to_phase
from pocketmq.cli.scenario.knobs import KNOBS, OWN, Knobs
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


UNUSUAL = {
    "append_ms": 77,
    "stall_ms": 777,
    "whole_disk": True,
    "burst": 7,
    "rate": 7.0,
    "seconds": 7.5,
    "body_bytes": 777,
    "timeout_ms": 7777,
    "probes": 7,
    "slave_timeout_ms": 777,
    "lock_ms": 77_000,
}


@pytest.mark.parametrize(("name", "knob"), [(each.name, knob) for each in CATALOG for knob in each.knobs])
def test_each_knob_of_a_scenario_changes_its_runs(name: str, knob: str) -> None:
    """And every run is still one that brokers and disk accept."""
    scenario = find(name)
    assert scenario is not None
    own, changed = scenario.plans(False, OWN), scenario.plans(False, Knobs({knob: UNUSUAL[knob]}))
    assert [plan.name for plan in own] == [plan.name for plan in changed]
    assert [_data(plan) for plan in own] != [_data(plan) for plan in changed]
    for plan in changed:
        for switch in plan.switches:
            msgspec.json.decode(msgspec.json.encode({"rules": switch.rules}), type=FaultRules)
        for act in getattr(plan, "acts", ()):
            assert act.at_s < plan.load.due_s()[-1]


def _data(plan: Any) -> list[object]:
    """Return what a plan does, without its checks, which are functions."""
    names = [field.name for field in dataclasses.fields(plan) if field.name != "checks"]
    return [getattr(plan, name) for name in names]


def test_the_options_of_the_command_are_the_table() -> None:
    """Each knob has its option, and each scenario's knobs are in the table."""
    assert UNUSUAL.keys() == KNOBS.keys()
    assert {knob for each in CATALOG for knob in each.knobs} == KNOBS.keys()


def test_a_whole_disk_stalls_and_comes_back() -> None:
    """Not one append, but every call that moves data, until the stall is over."""
    scenario = find("pcbusy")
    assert scenario is not None
    plan = scenario.plans(False, Knobs({"whole_disk": True, "stall_ms": 2000}))[0]
    begin, end = plan.switches
    assert begin.rules[0]["hang"]
    assert {"read", "sync", "store", "write_at"} <= set(begin.rules[0]["operations"])
    assert (end.at_s - begin.at_s, end.rules) == (2.0, ())


def test_what_is_held_goes_on() -> None:
    """One stalled append is over after seconds; held, each append stalls."""
    assert for_good({**APPENDS, "delay_ms": 5, "count": 1}) == {**APPENDS, "delay_ms": 5}
    for each in CATALOG:
        if each.can_hold:
            plan = each.plans(False, OWN)[0]
            assert plan.role == "fault"
            text = "\n".join(lines("127.0.0.1:1", plan, []))
            assert "name server 127.0.0.1:1" in text
            assert plan.switches or plan.acts
