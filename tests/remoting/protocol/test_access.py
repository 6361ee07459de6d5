"""remoting/protocol/access.py: a request code needs the permission of RocketMQ 5.3.3, or a decision listed here.

``tests/vectors/rocketmq-request-access.txt`` has RocketMQ's needs, one code a line: ``annotation`` for those of
``RocketMQAction`` and ``RocketMQResource`` at the header classes of its jar, ``builder`` where
``DefaultAuthorizationContextBuilder`` has its own case. ``tests/interop/test_request_access.py`` compares the
annotations with the jar.
"""

from pathlib import Path

import pytest

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol import PROTOCOL
from pocketmq.remoting.protocol.access import (
    ANYONE,
    FROM_BROKER,
    GET,
    SUB,
    UPDATE,
    Action,
    Place,
    Resource,
    cluster,
    group,
    needs,
    topic,
)
from pocketmq.remoting.protocol.spec import Pool
from pocketmq.remoting.string_map import wire_names

FILE = Path(__file__).parents[2] / "vectors" / "rocketmq-request-access.txt"
READS = Action.SUB | Action.GET | Action.LIST
STORED = "the topic of the stored message counts, not one that the client may leave out"
OUR_DECISIONS = {
    18: "RocketMQ checks nothing: no field of its header names a resource",
    21: "RocketMQ checks nothing: no field of its header names a resource",
    224: "RocketMQ checks nothing: no field of its header names a resource",
    33: STORED,
    37: STORED,
    323: STORED,
    39: "sent to clients",
    40: "sent to clients",
    326: "sent to clients",
}


def rocketmq_needs() -> dict[int, set[tuple[str, str, frozenset[str]]]]:
    """Return code → (resource, field or "", actions) of each need."""
    found = {}
    for line in FILE.read_text().splitlines():
        code, _, rest = (*line.split(" ", 2), "")[:3]
        each = set()
        for need in filter(None, rest.split(", ")):
            place, actions = need.split(" ")
            resource, field = place.split(":")
            each.add((resource, field, frozenset(actions.split("|"))))
        found[int(code)] = each
    return found


def our_needs(code: int) -> set[tuple[str, str, frozenset[str]]]:
    spec = PROTOCOL[code]
    names = wire_names(spec.request) if spec.request is not None else {}
    found = set()
    for need in spec.access.needs:
        if isinstance(need.name, Place):
            field = {Place.BODY: "body", Place.OWN: ""}.get(need.name, need.name.value)
        else:
            field = names[need.name]
        actions = frozenset(str(action.name) for action in Action if action in need.actions)
        found.add((need.resource.name, field, actions))
    return found


ROCKETMQ = rocketmq_needs()


@pytest.mark.parametrize("code", [code for code in RequestCode if code in ROCKETMQ], ids=lambda code: code.name)
def test_a_code_of_rocketmq_needs_what_rocketmq_asks_for(code: RequestCode) -> None:
    theirs = ROCKETMQ[code]
    if code == RequestCode.GET_CONSUME_STATS:
        theirs = {need for need in theirs if need[1] != "topicList"}  # a field that our header lacks
    assert (our_needs(code) == theirs) is (code not in OUR_DECISIONS), (our_needs(code), theirs)


@pytest.mark.parametrize("code", list(RequestCode), ids=lambda code: code.name)
def test_every_code_has_an_access_that_its_request_can_answer(code: RequestCode) -> None:
    """A need names a field of the header, or a body of the request; only the first steps are open to anyone."""
    spec = PROTOCOL[code]
    assert bool(spec.access.needs) is not bool(spec.access.by)
    assert (spec.access is ANYONE) is (code in (RequestCode.HELLO, RequestCode.AUTHENTICATE))
    assert (spec.access is FROM_BROKER) is (spec.pool is Pool.CLIENT)
    for need in spec.access.needs:
        assert need.actions
        if isinstance(need.name, str):
            assert spec.request is not None
            assert need.name in spec.request.__struct_fields__
        elif need.name is Place.BODY:
            assert isinstance(spec.body, type)
        assert (need.name is Place.OWN) <= (need.resource is Resource.CLUSTER)


def test_what_changes_something_needs_more_than_to_read() -> None:
    """Codes whose names say change, delete or reset: none is granted with read access alone."""
    words = ("UPDATE", "DELETE", "RESET", "CLEAN", "WIPE", "ADD_", "PUT_", "REGISTER", "PROMOTE", "DEMOTE", "RELEASE")
    changing = [code for code in RequestCode if any(word in code.name for word in words)]
    assert len(changing) > 25
    for code in changing:
        for need in PROTOCOL[code].access.needs:
            is_own_progress = code in (RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.UNREGISTER_CLIENT)
            assert is_own_progress or not need.actions & READS, code.name


def test_the_codes_that_rocketmq_leaves_open_need_what_their_siblings_do() -> None:
    """RocketMQ checks no code without an annotated header."""
    siblings = {361: 11, 324: 10, 325: 310, 46: 34, 305: 224, 206: 224, 304: 224, 26: 315, 28: 315, 306: 102}
    for code, sibling in siblings.items():
        assert PROTOCOL[code].access == PROTOCOL[sibling].access, code
    assert PROTOCOL[200].access.needs[0].actions == PROTOCOL[17].access.needs[0].actions


def test_what_an_access_says() -> None:
    """The words of docs/protocol.md."""
    access = needs(topic("topic", SUB | GET), group(Place.BODY, UPDATE), cluster(GET))
    assert str(access) == "Topic Sub or Get (`topic`), Group Update (of the body), Cluster Get"
    assert str(FROM_BROKER) == "the broker"
