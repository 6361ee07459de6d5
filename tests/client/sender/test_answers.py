"""The meaning of an answer for the sections of its request, without a broker."""

from typing import Any

from pocketmq.client.connection.instance import BrokerConnection, ClientInstance
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.errors import Attempt
from pocketmq.client.message.receipts import SectionOutcome, SendStatus
from pocketmq.client.sender.answers import Answers
from pocketmq.client.sender.attempt_plan import AttemptPlan
from pocketmq.client.sender.queue_choice import QueueChooser
from pocketmq.client.sender.retry import RetryPolicy
from pocketmq.client.sender.retry_budget import RetryBudget
from pocketmq.client.sender.retry_gate import RetryGate
from pocketmq.client.sender.section import Section
from pocketmq.common.errors import Stored
from pocketmq.common.message import Message
from pocketmq.remoting.codec import Response
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import ConnectionLost
from pocketmq.remoting.protocol.hello import Announcement
from pocketmq.remoting.protocol.send import NativeAppendResponseHeader

CHANNEL: Any = None
CONNECTION = BrokerConnection("b", "127.0.0.1:1", CHANNEL, Announcement(cluster="c", broker="b"))


class Owner:
    """Records the result of each section."""

    def __init__(self) -> None:
        self.stored: dict[int, SectionOutcome] = {}
        self.tried: dict[int, Attempt] = {}
        self.finished: dict[int, Exception] = {}
        instance = ClientInstance("127.0.0.1:1")
        chooser = QueueChooser(instance.clock, instance.random, None)
        gate = RetryGate(RetryBudget(0.1, 10))
        plan = AttemptPlan(RetryPolicy(set(), None), gate, chooser, instance.routes, instance.clock, instance.random)
        self.answers = Answers(instance, plan, self)

    def succeeded(self, section: Section, outcome: SectionOutcome) -> None:
        self.stored[section.queue_id] = outcome

    def attempted(self, section: Section, attempt: Attempt, now_ns: int) -> None:
        self.tried[section.queue_id] = attempt

    def finish(self, section: Section, error: Exception) -> None:
        self.finished[section.queue_id] = error


def section(queue_id: int) -> Section:
    queue = MessageQueue("T", "b", queue_id)
    made = Section(None, queue, build=None, started_ns=0, deadline_ns=1 << 62, born_ms=1, attempts_max=3)
    made.messages, made.uniq_keys, made.records = [Message("T", b"x")], [b"U" * 32], [b"record"]
    return made


def answer(code: int, results: list[Any], remark: str = "") -> Response:
    return Response(code, 0, remark, NativeAppendResponseHeader(0, results), b"", 2, {}, 409)


def test_each_section_has_the_result_of_its_place() -> None:
    """One is stored, another is refused separately: none of its messages was stored."""
    owner = Owner()
    results = [(0, 7, [(100, 1)], ""), (int(ResponseCode.TOPIC_NOT_EXIST), 0, [], "no such topic")]
    owner.answers.native(CONNECTION, [section(0), section(1)], 0, answer(ResponseCode.SUCCESS, results))
    assert owner.stored[0].status is SendStatus.SEND_OK
    assert list(owner.stored) == [0]
    refused = owner.tried[1]
    assert (refused.answer_code, refused.stored) == (ResponseCode.TOPIC_NOT_EXIST, Stored.NO)
    assert "no such topic" in refused.answer


def test_an_answer_with_too_few_results_confirms_nothing() -> None:
    """Without its result a section has no receipt, and no result can be assigned safely."""
    owner = Owner()
    owner.answers.native(
        CONNECTION, [section(0), section(1)], 0, answer(ResponseCode.SUCCESS, [(0, 7, [(100, 1)], "")])
    )
    assert not owner.stored
    assert sorted({**owner.tried, **owner.finished}) == [0, 1]


def test_a_refusal_as_a_whole_confirms_no_section() -> None:
    """A broker that refuses the request and yet reports a stored section contradicts itself: the refusal counts."""
    owner = Owner()
    owner.answers.native(
        CONNECTION, [section(0)], 0, answer(ResponseCode.SYSTEM_BUSY, [(0, 7, [(100, 1)], "")], "busy")
    )
    assert not owner.stored
    assert owner.tried[0].answer_code == ResponseCode.SYSTEM_BUSY


def test_a_lost_connection_leaves_open_whether_it_is_stored() -> None:
    """The request had left: only its receipt is missing."""
    owner = Owner()
    owner.answers.native(CONNECTION, [section(0)], 0, ConnectionLost("lost", stored=Stored.UNKNOWN))
    assert owner.tried[0].stored is Stored.UNKNOWN
    assert owner.tried[0].phase == "send"
