"""The verdict of a blind round: the first finding, both of two, cures, the exit code."""

from typing import Any

from tests.cli.doctor.blind.verdict import judge, table

NODES: Any = {"a:1": "master", "b:1": "slave", "c:1": "second"}


def report(*findings: tuple[str, str, str], cure: str = "", setting: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a report of findings as (address, severity, key), in the doctor's order."""
    settings = [setting] if setting is not None else []
    return {
        "findings": [{"severity": severity, "key": key, "address": where} for where, severity, key in findings],
        "brokers": [
            {
                "diagnosis": {
                    "address": address,
                    "error": "",
                    "findings": [
                        {"severity": severity, "key": key, "cure": cure, "settings": settings}
                        for where, severity, key in findings
                        if where == address
                    ],
                }
            }
            for address in NODES
        ],
    }


def test_the_first_finding_is_the_one_that_the_doctor_puts_first() -> None:
    found = report(("c:1", "error", "not-read"), ("a:1", "warning", "append-slow"))
    assert judge(["second-killed"], found, 1, NODES) == []
    assert judge(["disk-slow"], found, 1, NODES) == ["first is not-read on second", "disk-slow is not named"]


def test_a_finding_on_another_node_is_wrong() -> None:
    found = report(("a:1", "error", "not-read"))
    assert judge(["second-killed"], found, 1, NODES) == ["first is not-read on master", "second-killed is not named"]


def test_each_of_two_faults_is_named() -> None:
    one, other = ("a:1", "error", "slave-not-available"), ("c:1", "warning", "bad-cure-fast-failure-off")
    assert judge(["slave-killed", "fast-failure-off"], report(one, other), 1, NODES) == []
    assert judge(["slave-killed", "fast-failure-off"], report(one), 1, NODES) == ["fast-failure-off is not named"]


def test_a_forbidden_cure_is_wrong_in_words_and_as_a_setting() -> None:
    where = ("c:1", "error", "disk-full")
    setting = {"name": "send_thread_pool_queue_capacity", "present": "10000", "suggested": "20000"}
    assert len(judge(["master-full"], report(where, setting=setting), 1, NODES)) == 1
    found = report(("a:1", "error", "slave-not-available"), cure="try pocketmq ha promote")
    assert judge(["slave-frozen"], found, 1, NODES) == ["forbidden: pocketmq ha promote"]


def test_a_healthy_cluster_has_notes_only() -> None:
    assert judge(["nothing"], report(("a:1", "note", "pool-price")), 0, NODES) == []
    assert judge(["nothing"], report(("a:1", "warning", "open-bind")), 0, NODES) == []
    assert judge(["nothing"], report(("a:1", "warning", "sync-slow")), 0, NODES) == [
        "found sync-slow on master without a fault"
    ]


def test_the_exit_code_tells_the_worst() -> None:
    assert judge(["second-killed"], report(("c:1", "error", "not-read")), 0, NODES) == ["exit code 0 instead of 1"]


def test_the_table_counts_a_round_for_each_of_its_faults() -> None:
    rounds = [
        {"faults": ["slave-killed", "disk-slow"], "wrong": []},
        {"faults": ["disk-slow"], "wrong": ["first is …"]},
    ]
    assert table(rounds)[2:] == ["| slave-killed | 1 | 1 | 0 |", "| disk-slow | 2 | 1 | 1 |"]
