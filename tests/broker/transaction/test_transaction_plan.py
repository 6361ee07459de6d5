"""Where a half message waits, and which are refused: codes and words to the letter."""

from typing import Any

import pytest

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.transaction.transaction_plan import HalfPlan, is_half
from pocketmq.broker.transaction.transaction_table import TransactionTable
from pocketmq.common.errors import MessageIllegal
from tests.broker.refused_texts import said

HALF = {"TRAN_MSG": "true", "PGROUP": "g"}


def planned(properties: dict[str, str], *, pending_max: int = 1, **settings: Any) -> Any:
    plan = HalfPlan(BrokerConfig(broker_name="broker-a", **settings), TransactionTable(pending_max))
    return plan.plan("T", 3, dict(properties))


@pytest.mark.parametrize(
    ("properties", "settings", "expected"),
    [
        (
            {"TRAN_MSG": "true"},
            {},
            (13, "property PGROUP is missing: no producer group can make or report the decision"),
        ),
        (
            {**HALF, "PGROUP": "g" * 256},
            {},
            (13, "property PGROUP has 256 characters, limit 255"),
        ),
        (
            {**HALF, "DELAY": "3"},
            {},
            (13, "a transactional message cannot be delayed: send it plain, or without the delay"),
        ),
        (
            {**HALF, "CHECK_IMMUNITY_TIME_IN_SECONDS": "soon"},
            {},
            (13, "property CHECK_IMMUNITY_TIME_IN_SECONDS is 'soon', no seconds up to seven days"),
        ),
        (
            HALF,
            {"reject_transaction_message": True},
            (16, "the broker[broker-a] sending transaction message is forbidden"),
        ),
        (
            HALF,
            {"pending_max": 0},
            (2, "transaction message is under flow control, 0 half messages wait for a decision, limit 0"),
        ),
    ],
)
def test_what_a_client_reads(properties: dict[str, str], settings: Any, expected: tuple[int, str]) -> None:
    assert said(planned(properties, **settings)) == expected


def test_a_half_message_waits_in_rocketmq_s_topic() -> None:
    topic, queue_id, half = planned(HALF)
    assert (topic, queue_id, half.producer_group) == ("RMQ_SYS_TRANS_HALF_TOPIC", 0, "g")


def test_a_flag_without_the_property_is_refused() -> None:
    with pytest.raises(MessageIllegal, match="the message is illegal"):
        is_half(4, {})
