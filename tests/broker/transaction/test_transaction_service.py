"""Who is asked about a half message."""

from typing import Any

from pocketmq.auth.auth_table import AuthContents
from pocketmq.auth.policies import Policy, entry_of
from pocketmq.auth.session import Session
from pocketmq.auth.users import User
from pocketmq.broker.transaction.transaction_service import ProducerPort
from pocketmq.common.clock import ManualClock
from tests.broker.transaction_fixture import TransactionFixture
from tests.sim.checkers import fresh_disk, sim_config


class Speaker:
    """A connection, with the user of its last request."""

    def __init__(self, *allowed: str) -> None:
        contents = AuthContents().with_user(User(username="app", password="app-secret"))
        entries = tuple(entry_of(resource, ["Pub"], "Allow") for resource in allowed)
        contents = contents.with_policies("app", (Policy(entries),))
        self.speaker: Any = Session(contents.user("app"), None, contents, 1, checks=True)


def test_a_producer_that_may_not_send_to_the_topic_is_not_shown_its_half_messages() -> None:
    """It is as if no producer were connected: nothing counts towards giving the message up."""
    fixture = TransactionFixture(sim_config(), fresh_disk(), ManualClock(), transaction_check_max=2)
    fixture.half(b"x", topic="payments")
    fixture.port.hidden = {"payments"}
    for _ in range(3):
        assert fixture.round() == []
    assert fixture.service.checks_without_producer == 3
    fixture.port.hidden = set()
    assert fixture.round() == [b"x"]
    fixture.stop()


def test_the_user_of_the_last_request_decides() -> None:
    port = ProducerPort(clients=None, mailbox=None)  # type: ignore[arg-type]
    assert port.may_see(Speaker("Topic:payments"), "payments")  # type: ignore[arg-type]
    assert not port.may_see(Speaker("Topic:orders"), "payments")  # type: ignore[arg-type]
    unknown = Speaker()
    unknown.speaker = None  # nobody has to authenticate here
    assert port.may_see(unknown, "payments")  # type: ignore[arg-type]
