"""Who is asked about a half message."""

from typing import Any

import msgspec
import pytest

from pocketmq.auth.auth_table import AuthContents, AuthTable
from pocketmq.auth.config import AuthConfig
from pocketmq.auth.denials import Denials
from pocketmq.auth.guard import AuthGuard
from pocketmq.auth.policies import Policy, entry_of
from pocketmq.auth.session import Session
from pocketmq.auth.users import User, UserStatus
from pocketmq.broker.transaction.transaction_service import ProducerPort
from pocketmq.common.clock import ManualClock
from tests.broker.transaction_fixture import TransactionFixture
from tests.sim.checkers import fresh_disk, sim_config

APP = User(username="app", password="app-secret")


class Site:
    """A guard with one user; ``speaker`` is the user of a connection's last request."""

    def __init__(self, *allowed: str) -> None:
        entries = tuple(entry_of(resource, ["Pub"], "Allow") for resource in allowed)
        contents = AuthContents().with_user(APP).with_policies("app", (Policy(entries),))
        self.table, clock = AuthTable(contents), ManualClock()
        config = AuthConfig(authentication_enabled=True, authorization_enabled=True)
        guard = AuthGuard(config, self.table, cluster="C", clock=clock, denials=Denials(clock.now_ms))
        self.speaker: Any = Session(APP, None, contents, self.table.generation, checks=True)
        self.port = ProducerPort(None, None, guard)  # type: ignore[arg-type]

    def may_see(self, topic: str) -> bool:
        return self.port.may_see(self, topic)  # type: ignore[arg-type]


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
    assert Site("Topic:payments").may_see("payments")
    assert not Site("Topic:orders").may_see("payments")
    unknown = Site()
    unknown.speaker = None  # a request that needs no user was the last
    assert unknown.may_see("payments")


@pytest.mark.parametrize("change", ["disabled", "deleted", "another password", "no policy"])
def test_a_change_since_that_request_counts(change: str) -> None:
    """A connection that is open and silent is shown nothing that its user may not see any more."""
    site = Site("Topic:payments")
    contents = site.table.contents
    changed = {
        "disabled": lambda: contents.with_user(msgspec.structs.replace(APP, user_status=UserStatus.DISABLE)),
        "deleted": lambda: contents.without_user("app"),
        "another password": lambda: contents.with_user(msgspec.structs.replace(APP, password="another-secret")),
        "no policy": lambda: contents.with_policies("app", ()),
    }
    site.table.replace(contents.with_user(User(username="other", password="other-secret")))
    assert site.may_see("payments"), "a change that does not concern the user"
    site.table.replace(changed[change]())
    assert not site.may_see("payments")


def test_a_shorter_interval_does_not_wait_for_the_round_of_the_old_one() -> None:
    fixture = TransactionFixture(
        sim_config(), fresh_disk(), ManualClock(), transaction_check_interval=24 * 3_600_000, transaction_time_out=1
    )
    fixture.half(b"x")
    fixture.clock.advance_ms(60_000)
    fixture.service.step()
    assert fixture.service.rounds == 0
    msgspec.structs.force_setattr(fixture.config, "transaction_check_interval", 1000)  # as LiveSettings does
    fixture.service.step()
    fixture.clock.advance_ms(1000)
    fixture.service.step()
    assert fixture.service.rounds == 1
    fixture.stop()
