"""Errors of options name the mistake."""

from typing import Any

import pytest

from pocketmq.pipeline.errors import OptionIllegal
from pocketmq.pipeline.options import Options
from pocketmq.pipeline.source.positions import QueueKey
from pocketmq.pipeline.source.starting import Bound, Choice

KNOWN = ("namesrv", "subscribe", "subscribePattern", "assign", "startingOffsets", "startingTimestamp", "minPartitions")


def options(**values: str) -> Options:
    """Return options of a source."""
    return Options(values, (*KNOWN, "startingOffsetsByTimestamp", "flag"))


def test_a_misspelt_option_is_reported_with_the_right_one() -> None:
    """Names are compared without case; the error suggests the nearest one."""
    assert options(NAMESRV="x").text("namesrv") == "x"
    with pytest.raises(OptionIllegal, match="did you mean startingOffsets"):
        options(startingOfset="earliest")
    with pytest.raises(OptionIllegal, match="known: "):
        options(zzzzzz="1")


@pytest.mark.parametrize(
    ("values", "call", "text"),
    [
        ({}, lambda o: o.text("namesrv"), "option missing: namesrv"),
        ({"minPartitions": "many"}, lambda o: o.number("minPartitions", 0), "no whole number"),
        ({"minPartitions": "-1"}, lambda o: o.number("minPartitions", 0), "not 0 to"),
        ({"flag": "perhaps"}, lambda o: o.flag("flag", True), "true or false"),
        ({"assign": "[1"}, lambda o: o.table("assign"), "no JSON"),
        ({"assign": "[1]"}, lambda o: o.table("assign"), "no JSON object"),
        ({}, Choice.of, "none of them given"),
        ({"subscribe": "a", "assign": "{}"}, Choice.of, "subscribe and assign given"),
        ({"subscribe": " , "}, Choice.of, "names no topic"),
        ({"assign": "{}"}, Choice.of, "names no queue"),
        ({"assign": '{"t": [-1]}'}, Choice.of, "assign: t"),
        ({"startingOffsets": '{"t": 1}'}, lambda o: Bound.of(o, "starting", "earliest"), "startingOffsets"),
        (
            {"startingOffsets": "earliest", "startingTimestamp": "1"},
            lambda o: Bound.of(o, "starting", "earliest"),
            "contradict",
        ),
    ],
)
def test_a_bad_value_is_reported_with_its_reason(values: dict[str, str], call: Any, text: str) -> None:
    """Each refusal names the option."""
    with pytest.raises(OptionIllegal, match=text):
        call(options(**values))


def test_offsets_can_be_given_queue_by_queue() -> None:
    """The JSON is topic, broker, queue id."""
    bound = Bound.of(options(startingOffsets='{"t": {"b": {"0": 7, "1": -2}}}'), "starting", "latest")
    assert bound.offsets == {QueueKey("t", "b", 0): 7, QueueKey("t", "b", 1): -2}
    assert bound.word == "latest"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("kafka.bootstrap.servers", "a:9092", "here it is namesrv"),
        ("kafka.fetch.max.bytes", "5", "there is no Kafka here"),
        ("includeHeaders", "true", "here it is includeProperties"),
        ("path", "orders", "the path 'orders' means nothing here .*subscribe"),
        ("path", "/data/orders", "pocketmq-log"),
    ],
)
def test_habits_of_other_sources_are_explained(name: str, value: str, words: str) -> None:
    """Options of Spark's Kafka source, and a topic or directory given to ``load``."""
    with pytest.raises(OptionIllegal, match=words):
        Options({name: value}, ("namesrv", "subscribe", "includeProperties"))


def test_the_path_that_a_catalog_adds_is_passed_over() -> None:
    Options({"path": "file:/somewhere/spark-warehouse/orders"}, ("namesrv",))


@pytest.mark.parametrize(
    ("text", "ms"),
    [("500", 500), ("500ms", 500), ("30 s", 30_000), ("15m", 900_000), ("1H", 3_600_000), ("2d", 172_800_000)],
)
def test_time_spans(text: str, ms: int) -> None:
    """As Spark's users write them."""
    assert Options({"maxTriggerDelay": text}, ("maxTriggerDelay",)).duration_ms("maxTriggerDelay", 1) == ms


@pytest.mark.parametrize("text", ["", "m", "5 weeks", "-1s", "1.5h"])
def test_no_time_spans(text: str) -> None:
    with pytest.raises(OptionIllegal, match="no time span"):
        Options({"maxTriggerDelay": text}, ("maxTriggerDelay",)).duration_ms("maxTriggerDelay", 1)
