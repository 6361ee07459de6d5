"""The extra fields of a refusal, which come from a peer."""

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.connection.refusal_facts import NO_FACTS, RETRY_AFTER_MS_MAX, RefusalFacts, refusal_facts
from pocketmq.common.errors import Cause, Stored


def test_all_that_a_broker_says_is_read() -> None:
    """The four fields of a PocketMQ refusal."""
    extra = {"cause": "queue_timeout", "stored": "no", "retry_after_ms": "250", "stages": "queue_wait=203.51"}
    assert refusal_facts(extra) == RefusalFacts(Cause.QUEUE_TIMEOUT, Stored.NO, 250, "queue_wait=203.51")


def test_nothing_is_made_up() -> None:
    """A real RocketMQ sends none of them; a newer node may send unknown ones."""
    assert refusal_facts({}) == NO_FACTS
    assert refusal_facts({"cause": "moon_phase", "stored": "maybe", "retry_after_ms": "-1"}) == NO_FACTS


@given(st.dictionaries(st.sampled_from(["cause", "stored", "retry_after_ms", "stages", "x"]), st.text()))
def test_nonsense_is_no_fact_and_no_error(extra: dict[str, str]) -> None:
    """Any text in any field."""
    facts = refusal_facts(extra)
    assert 0 <= facts.retry_after_ms <= RETRY_AFTER_MS_MAX
    assert len(facts.stages) <= 500
    assert "\n" not in facts.stages
