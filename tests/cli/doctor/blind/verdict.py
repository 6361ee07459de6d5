"""Is a report of the doctor right about the faults of a round? Pure: from the JSON of ``pocketmq doctor --json``.

Lives here: ``Shown``, ``judge``, and the table of many rounds.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.cli.doctor.blind_table import FAULTS, Fault, Node

TRUE_OF_ALL = ("open-bind",)
"""The hosts of a round reach each other without users (``auth.open``), and the doctor says so in each report."""
BY_NAME: Mapping[str, Fault] = {fault.name: fault for fault in FAULTS}


def shown(report: Mapping[str, Any], nodes: Mapping[str, Node]) -> list[tuple[str, str, str]]:
    """Return (severity, key, node) of each finding that is worse than a note, in the doctor's own order."""
    return [
        (each["severity"], each["key"], nodes.get(each["address"], "?"))
        for each in report.get("findings", ())
        if each["severity"] != "note" and each["key"] not in TRUE_OF_ALL
    ]


def cures(report: Mapping[str, Any]) -> Iterable[str]:
    """Yield each cure and each advice of a report, in the words of its plain lines."""
    for broker in report.get("brokers", ()):
        for finding in broker["diagnosis"]["findings"]:
            yield finding["cure"]
            for advice in finding["settings"]:
                yield f"{advice['name']} = {advice['present']} → {advice['suggested']}"


def accepts(fault: Fault, key: str, node: str) -> bool:
    """Return whether a finding names a fault."""
    return any((key == one or key.startswith(f"{one}-")) and node in where for one, where in fault.accepted.items())


def judge(names: Sequence[str], report: Mapping[str, Any], code: int, nodes: Mapping[str, Node]) -> list[str]:
    """Return what is wrong with a report; empty if it is right."""
    faults = [BY_NAME[name] for name in names if BY_NAME[name].accepted]
    findings, wrong = shown(report, nodes), []
    if not faults:
        wrong += [f"found {key} on {node} without a fault" for _, key, node in findings]
    elif not findings:
        wrong.append("nothing found")
    elif not any(accepts(fault, *findings[0][1:]) for fault in faults):
        wrong.append(f"first is {findings[0][1]} on {findings[0][2]}")
    for fault in faults if findings else ():
        if not any(accepts(fault, key, node) for _, key, node in findings):
            wrong.append(f"{fault.name} is not named")
    said = list(cures(report))
    for fault in faults:
        wrong += [f"forbidden: {cure}" for cure in fault.forbidden if any(cure in each for each in said)]
    expected = 1 if findings and findings[0][0] == "error" else 0
    if code != expected and not (code == 4 and all(each["diagnosis"]["error"] for each in report.get("brokers", ()))):
        wrong.append(f"exit code {code} instead of {expected}")
    return list(dict.fromkeys(wrong))


def table(rounds: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a Markdown table of rounds, right and wrong ones for each fault; a pair of faults counts for both."""
    right: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    for each in rounds:
        for name in each["faults"]:
            (wrong if each["wrong"] else right)[name] += 1
    lines = ["| fault | rounds | right | wrong |", "|---|---|---|---|"]
    names = (fault.name for fault in FAULTS if fault.name in right or fault.name in wrong)
    return [*lines, *(f"| {name} | {right[name] + wrong[name]} | {right[name]} | {wrong[name]} |" for name in names)]
