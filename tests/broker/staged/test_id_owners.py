"""Which user a transactional id belongs to."""

import pytest

from pocketmq.auth.errors import AccessDenied
from pocketmq.auth.session import Session
from pocketmq.auth.users import User, UserStatus
from pocketmq.broker.staged.id_owners import IdOwners
from pocketmq.broker.staged.staged_state import IDS_MAX
from pocketmq.remoting.codec import Request
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frame import MSGPACK
from tests.auth.test_guard import Rig

ALICE, BOB = User(username="alice", password="alice-secret"), User(username="bob", password="bob-secret")


def request_of(rig: Rig, user: User | None, *, checks: bool = True) -> Request:
    table = rig.table
    session = None if user is None else Session(user, None, table.contents, table.generation, checks=checks)
    return Request(RequestCode.STAGED_TRANSACTION_END, 1, False, 0, 0, MSGPACK, None, b"", {}, session=session)


def test_the_first_user_keeps_an_id_until_it_is_disabled_or_deleted() -> None:
    rig = Rig()
    rig.table.replace(rig.table.contents.with_user(BOB))
    owners = IdOwners(rig.guard)
    owners.check(request_of(rig, ALICE), "job")
    for _ in range(2):
        with pytest.raises(AccessDenied, match="another user has it"):
            owners.check(request_of(rig, BOB), "job")
    owners.check(request_of(rig, ALICE), "job")
    disabled = User(username="alice", password="alice-secret", user_status=UserStatus.DISABLE)
    rig.table.replace(rig.table.contents.with_user(disabled))
    owners.check(request_of(rig, BOB), "job")
    rig.table.replace(rig.table.contents.without_user("bob"))
    owners.check(request_of(rig, ALICE), "job")
    assert owners.users == {"job": "alice"}


def test_nobody_owns_anything_where_users_do_not_matter() -> None:
    rig = Rig()
    owners = IdOwners(rig.guard)
    owners.check(request_of(rig, None), "job")
    owners.check(request_of(rig, ALICE, checks=False), "job")
    IdOwners(None).check(request_of(rig, ALICE), "job")
    assert owners.users == {}


def test_owners_are_bounded_and_those_that_are_used_stay() -> None:
    rig = Rig()
    owners = IdOwners(rig.guard)
    owners.check(request_of(rig, ALICE), "used")
    for number in range(IDS_MAX + 10):
        owners.check(request_of(rig, ALICE), f"job-{number}")
        owners.check(request_of(rig, ALICE), "used")
    assert len(owners.users) == IDS_MAX
    assert "used" in owners.users
    assert "job-0" not in owners.users
    assert set(owners.ids["alice"]) == set(owners.users)


def test_a_user_with_many_ids_drives_out_only_its_own() -> None:
    """Else ten thousand questions would make the id of another user free again."""
    rig = Rig()
    rig.table.replace(rig.table.contents.with_user(BOB))
    owners = IdOwners(rig.guard)
    owners.check(request_of(rig, ALICE), "job")
    for number in range(IDS_MAX + 10):
        owners.check(request_of(rig, BOB), f"flood-{number}")
    assert (len(owners.users), len(owners.ids["bob"])) == (IDS_MAX, IDS_MAX - 1)
    with pytest.raises(AccessDenied, match="another user has it"):
        owners.check(request_of(rig, BOB), "job")
    owners.check(request_of(rig, ALICE), "job")
