"""The dashboard and the alert rules in conf/grafana ask for metrics and labels that the broker exports."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.metrics.metrics import GROUPS
from tests.promtool import promtool

FOLDER = Path(__file__).parents[3] / "conf" / "grafana"
RULES = FOLDER / "alerts.yml"
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
OF_PROMETHEUS = frozenset({"instance", "job", "le"})
NAME = re.compile(r"\b(?:pocketmq|rocketmq)_[a-z0-9_]+")
CLAUSE = re.compile(r"\b(?:by|on|without) \(([^)]*)\)|\{([^}]*)\}")
LABEL = re.compile(r"([a-z_]+) *(?:=~|!~|!=|=)")


def exported() -> dict[str, frozenset[str]]:
    """Return sample name → labels."""
    found: dict[str, frozenset[str]] = {}
    for group in GROUPS:
        for row in group.rows:
            labels = frozenset((*group.labels, *row.labels))
            ends = ("_bucket", "_count", "_sum") if row.kind == "histogram" else ("",)
            if row.name:
                found |= {row.exported + end: labels for end in ends}
    return found


def queries(part: Any = DASHBOARD) -> Iterator[str]:
    """Yield every query of the dashboard."""
    if isinstance(part, dict):
        yield from (each for key, each in part.items() if key in ("expr", "query") and isinstance(each, str))
        for each in part.values():
            yield from queries(each)
    elif isinstance(part, list):
        for each in part:
            yield from queries(each)


def rules() -> Iterator[str]:
    """Yield every expression of the rules, and the labels that their texts name as one of ``by``."""
    text = RULES.read_text()
    for alert in text.split("- alert:")[1:]:
        expression = re.search(r"expr: (?:>-\n)?(.*?)\n +(?:for|labels):", alert, re.DOTALL)
        assert expression is not None, alert
        yield expression[1]


EXPRESSIONS = [each for each in (*queries(), *rules()) if NAME.search(each)]


def labels_of(expression: str) -> set[str]:
    named: set[str] = set()
    for clause, matchers in CLAUSE.findall(expression):
        named |= {each.strip() for each in clause.split(",") if each.strip()}
        named |= set(LABEL.findall(matchers))
    return named


def test_there_are_queries_and_rules() -> None:
    assert len(list(rules())) == RULES.read_text().count("- alert:") >= 10
    assert len(EXPRESSIONS) > 40


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_query_asks_for_what_there_is(expression: str) -> None:
    """Its metrics are exported, and one of them has each label that it names."""
    metrics = exported()
    names = set(NAME.findall(expression))
    assert names - metrics.keys() == set()
    assert labels_of(expression) - OF_PROMETHEUS - frozenset().union(*(metrics[name] for name in names)) == set()


def test_a_wrong_query_would_be_noticed() -> None:
    """The rule on an example."""
    assert labels_of('sum by (topic, le) (rate(a{instance=~"$i", pair="x"}[1m]))') == {
        "topic",
        "le",
        "instance",
        "pair",
    }
    assert "pocketmq_no_such_metric" not in exported()


def test_the_texts_of_rules_name_labels_of_their_metrics() -> None:
    """A label that an expression does not keep would be empty in the message."""
    for alert in RULES.read_text().split("- alert:")[1:]:
        kept = labels_of(alert.split("expr:")[1].split("annotations:")[0])
        used = set(re.findall(r"\$labels\.([a-z_]+)", alert))
        assert used - kept - {"instance"} == set(), alert


def test_each_panel_says_what_it_shows() -> None:
    """And has a place of its own."""
    panels = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    assert all(panel["description"] and panel["title"] and panel["targets"] for panel in panels)
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    cells: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        own = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not own & cells, panel["title"]
        cells |= own


def test_prometheus_takes_the_rules() -> None:
    code, said = promtool("check", "rules", str(RULES))
    assert code == 0, said


def test_a_group_that_is_behind_raises_an_alert(tmp_path: Path) -> None:
    """And one without consumers; one that is being served does not."""
    node = 'instance="b:5557", topic="orders", is_system="false"'
    series = {
        f'rocketmq_consumer_lag_latency_milliseconds{{{node}, consumer_group="slow"}}': "0+60000x30",
        f'rocketmq_consumer_lag_latency_milliseconds{{{node}, consumer_group="quick"}}': "200x30",
        f'rocketmq_consumer_ready_messages{{{node}, consumer_group="slow"}}': "5x30",
        f'rocketmq_consumer_ready_messages{{{node}, consumer_group="alone"}}': "5x30",
        'rocketmq_consumer_connections{instance="b:5557", consumer_group="slow", language="java"}': "2x30",
    }

    expected = [
        fired("PocketMQGroupBehind", instance="b:5557", consumer_group="slow", topic="orders"),
        fired("PocketMQGroupWithoutConsumers", instance="b:5557", consumer_group="alone"),
    ]
    rows = [{"series": name, "values": values} for name, values in series.items()]
    one = {"interval": "1m", "input_series": rows, "alert_rule_test": expected}
    test = tmp_path / "test.json"  # JSON is YAML
    test.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [one]}))
    code, said = promtool("test", "rules", str(test))
    assert code == 0, said


def fired(name: str, **labels: str) -> dict[str, Any]:
    """Return what promtool expects of an alert after 25 minutes: one, with these labels and its texts."""
    yaml = pytest.importorskip("yaml", reason="needs PyYAML: pip install 'pocketmq[acl-import]'")
    groups = yaml.safe_load(RULES.read_text())["groups"]
    rule = next(rule for group in groups for rule in group["rules"] if rule["alert"] == name)

    def shown(text: str) -> str:
        return re.sub(r"\{\{ \$labels\.([a-z_]+) \}\}", lambda match: labels[match[1]], text)

    texts = {key: shown(text) for key, text in rule["annotations"].items()}
    alert = {"exp_labels": {**rule["labels"], **labels}, "exp_annotations": texts}
    return {"eval_time": "25m", "alertname": name, "exp_alerts": [alert]}
