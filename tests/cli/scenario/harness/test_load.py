"""Sends of a scenario: a result has the words that its reader looks for."""

from typing import Any, cast

from pocketmq.cli.scenario.harness.load import Load, run_load
from pocketmq.client.errors import Attempt, SendFailed
from pocketmq.client.producer.producer import Producer
from pocketmq.client.sender.retry import send_failed
from pocketmq.common.errors import Cause, Stored

NO_ANSWER = Attempt("b", "127.0.0.1:1", "send", 3000.0, -1, "no answer to SEND_MESSAGE_V2", stored=Stored.UNKNOWN)
BUSY = Attempt("b", "127.0.0.1:1", "answer", 1.0, 2, "[OVERLOAD]system busy", Cause.QUEUE_FULL)


class FailingProducer:
    """Every send ends with the same error."""

    def __init__(self, error: SendFailed) -> None:
        self._error = error

    async def send(self, *_: Any) -> None:
        raise self._error


async def text_of(error: SendFailed) -> str:
    (send,) = await run_load(cast(Producer, FailingProducer(error)), "T", Load(burst=1))
    return send.text


async def test_a_send_whose_time_is_over_has_rocketmqs_words() -> None:
    """The incident is known by this text; a refused send keeps its code and text."""
    assert await text_of(send_failed("T", [NO_ANSWER], "no time is left", 3000.0, late=True)) == (
        "RemotingTooMuchRequestException: sendDefaultImpl call timeout; no answer to SEND_MESSAGE_V2"
    )
    assert await text_of(send_failed("T", [NO_ANSWER], "all used up", 3000.0)) == "no answer to SEND_MESSAGE_V2"
    assert await text_of(send_failed("T", [BUSY], "no time is left", 9.0, late=True)) == (
        "2 SYSTEM_BUSY: [OVERLOAD]system busy"
    )
