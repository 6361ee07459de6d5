"""Each cause is complete: broker, doctor, report, documents and the producer agree with its row."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.broker.flow_control import busy_answers
from pocketmq.broker.flow_control.admission import STARTING
from pocketmq.broker.request.request_task import OVERLOAD, SHUTTING_DOWN, Refusal
from pocketmq.cli.doctor.diagnosis import diagnose
from pocketmq.cli.doctor.finding import Area
from pocketmq.cli.scenario.catalog import CATALOG
from pocketmq.client.sender.retry import DEFAULT_RETRY_RESPONSE_CODES, RETRY_RESPONSE_CODES_4_9
from pocketmq.common import refusals
from pocketmq.common.errors import Cause
from pocketmq.common.refusals import REFUSALS, RETRIED_SINCE_4_9, RETRIED_SINCE_5_3, Row, Text, find
from pocketmq.pipeline.jobs.flow_control.chain import Case, explain
from pocketmq.pipeline.jobs.flow_control.evidence import Evidence, Incident
from pocketmq.pipeline.jobs.flow_control.minutes import NO_INCIDENT
from pocketmq.remoting.refused_requests import CAUSES_OF_THE_SERVER
from tests.cli.doctor.snapshots import refusal, settings, snapshot, telemetry

ROOT = Path(__file__).resolve().parent.parent
ROWS = pytest.mark.parametrize("row", REFUSALS.values(), ids=lambda row: row.cause.value)
INCIDENT = Incident("b@1", "b", 1_000_000 * 60_000, 1_000_001 * 60_000, 1, 10, 0)


@ROWS
def test_docs_sending_explains_every_cause(row: Row) -> None:
    """Each cause has a line in the table, and a paragraph with the cure."""
    document = " ".join((ROOT / "docs" / "sending.md").read_text(encoding="utf-8").split())
    assert f"[`{row.cause.value}`](#{row.cause.value})" in document
    assert f"#### {row.cause.value} " in document
    assert f"*Cure*: {row.cure}" in document


@ROWS
def test_the_doctor_has_a_rule_for_every_cause(row: Row) -> None:
    """The finding gives the reason and the cure; or the row says why no broker ever refuses with this cause."""
    if row.never_from_broker:
        return
    found = diagnose(snapshot(telemetry(refusals=[refusal(row.cause.value, "some text")])), settings())
    (finding,) = [each for each in found if each.key.startswith("refused-")]
    assert Area(row.area) is finding.area or Area.ADMISSION in finding.concerns
    assert "This version does not know" not in finding.cause
    assert finding.cure
    assert all(bad in finding.cure for bad in row.bad_cures[:1] if row.cause is not Cause.QUEUE_TIMEOUT)
    assert finding.reference == (f"pocketmq scenario {row.scenario}" if row.scenario else "")


@ROWS
def test_the_report_has_a_chain_for_every_cause(row: Row) -> None:
    """The chain has a cure; a client's mistakes and rows without a cause are in its tables, but are no incident."""
    if row.never_from_broker or row.cause.value in NO_INCIDENT:
        return
    told = Evidence("b@1", "refusal", "line", count=3, cause=row.cause.value, file="/logs/b/broker.log", line=7)
    (chain,) = explain(Case(INCIDENT, [told]))
    assert "Not enough evidence" not in chain.summary
    assert chain.cures
    assert chain.scenario == row.scenario


@ROWS
def test_its_scenario_exists(row: Row) -> None:
    """``pocketmq scenario NAME`` runs each named scenario."""
    assert row.scenario == "" or row.scenario in {scenario.name for scenario in CATALOG}


@pytest.mark.parametrize(
    "refusal",
    [
        OVERLOAD,
        SHUTTING_DOWN,
        STARTING,
        busy_answers.reject_page_cache_busy(1500),
        busy_answers.reject_no_write_buffer(200),
        busy_answers.reject_slave(),
        busy_answers.expired_page_cache_busy(1500, 250_000_000, 17),
        busy_answers.expired_timeout(200, 250_000_000, 17),
    ],
    ids=lambda refusal: refusal.remark,
)
def test_the_broker_answers_as_its_row_says(refusal: Refusal) -> None:
    """The answer has the row's text, code, stored flag and retry time."""
    row = REFUSALS[refusal.cause]
    (match,) = [each for each in find(refusal.remark) if each.row is row]
    assert match.text is not None
    assert refusal.code == match.text.code
    assert refusal.stored is row.stored
    assert row.retry_after.ms_min <= refusal.retry_after_ms <= row.retry_after.ms_max


def refusals_in_place() -> Iterator[tuple[str, str, str]]:
    """Yield each ``refused(Cause.X, TEXT, ...)`` of the broker: file, cause and name of the text."""
    for path in sorted((ROOT / "broker").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)) if "refused(" in source else ():
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "refused":
                named = [each for each in node.args[:2] if isinstance(each, ast.Attribute)]
                if named and getattr(named[0].value, "id", "") == "Cause":
                    yield path.name, named[0].attr, named[1].attr


@pytest.mark.parametrize(("file", "cause", "text"), [*refusals_in_place()])
def test_a_refusal_has_a_text_of_its_own_row(file: str, cause: str, text: str) -> None:
    """The cause beside the text in the code is the one that explains the text to a client."""
    assert getattr(refusals, text) in REFUSALS[Cause[cause]].texts


def test_the_refusals_of_the_broker_s_checks_are_found() -> None:
    """Otherwise the test above would check nothing."""
    found = {file for file, _, _ in refusals_in_place()}
    assert {"send_checks.py", "pull_checks.py", "delay_plan.py", "transaction_plan.py", "ha_node.py"} <= found


NOT_OURS = ("wait response on the channel", "connect to <%s>", "send request to <%s>")
"""Texts that only RocketMQ's clients make."""


def strings_of(source: str) -> Iterator[str]:
    """Yield every string in a module, with ``%s`` for the fields of an f-string."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            parts = (str(each.value) if isinstance(each, ast.Constant) else "%s" for each in node.values)
            yield "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_every_text_is_one_that_the_product_still_has() -> None:
    """A text that its module words differently would never be found."""
    sources = [path for layer in ("broker", "client", "remoting", "store") for path in (ROOT / layer).rglob("*.py")]
    present = {each for path in sources for each in strings_of(path.read_text(encoding="utf-8"))}
    shared = {each.template for each in vars(refusals).values() if isinstance(each, Text)}  # read from the table
    missing = [
        text.template
        for row in REFUSALS.values()
        for text in row.texts
        if text.template not in shared
        and not text.template.startswith(NOT_OURS)
        and not any(text.template.replace("%d", "%s") in each for each in present)
    ]
    assert missing == []


def test_the_producer_tries_again_what_the_table_says() -> None:
    """The codes below 10,000 come from a broker; those above are the client's own."""
    of_brokers = {code for code in RETRIED_SINCE_4_9 if code < 10_000}
    assert of_brokers == RETRY_RESPONSE_CODES_4_9
    assert of_brokers | RETRIED_SINCE_5_3 == DEFAULT_RETRY_RESPONSE_CODES


def test_causes_of_the_server_are_no_client_s_mistakes() -> None:
    """A cause that counts as the broker's trouble is not logged as a client's mistake."""
    assert not {cause.value for cause in CAUSES_OF_THE_SERVER} & set(NO_INCIDENT)
