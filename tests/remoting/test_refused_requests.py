"""The trace of refused requests: it is complete and bounded, and holds only refusals."""

import threading

import pytest

from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import Cause
from pocketmq.common.logs import CapturedLog
from pocketmq.remoting.codec import Request
from pocketmq.remoting.codes import RequestCode, ResponseCode, version_name
from pocketmq.remoting.frame import JSON
from pocketmq.remoting.protocol import PROTOCOL
from pocketmq.remoting.refused_requests import (
    CAUSES_OF_THE_SERVER,
    KINDS_MAX,
    SNAPSHOT_MAX,
    TEXT_LENGTH_MAX,
    VERSIONS_MAX,
    RefusedRequests,
    is_refusal,
)
from pocketmq.remoting.string_map import READERS

CPP, GO = 1, 9


def new_refused_requests() -> tuple[RefusedRequests, ManualClock, CapturedLog]:
    clock, log = ManualClock(), CapturedLog()
    return RefusedRequests(clock, log), clock, log


def note(
    refused: RefusedRequests, request_code: int = 34, *, version: int = 63, remark: str = "no", code: int = 1
) -> None:
    refused.note(request_code, code, Cause.CODEC, remark, remote="10.0.0.3:5", language=CPP, version=version)


def request(code: int, body: bytes = b"", fields: dict[str, str] | None = None) -> Request:
    spec = PROTOCOL.get(code)
    header = READERS[spec.request](fields) if fields is not None and spec is not None and spec.request else None
    return Request(code, 1, False, 317, GO, JSON, header, body, {})


def test_each_kind_is_counted_with_the_latest_words_and_client() -> None:
    """Refusals count by request code, answer, cause, language and version."""
    refused, clock, _ = new_refused_requests()
    note(refused, remark="first")
    clock.advance_ms(30_000)
    note(refused, remark="second")
    note(refused, version=409)
    note(refused, code=3)
    note(refused, int(RequestCode.SEND_MESSAGE))
    kinds = {(each.request, each.code, each.version): each for each in refused.snapshot()}
    assert set(kinds) == {
        ("HEART_BEAT", 1, "63"),
        ("HEART_BEAT", 1, "V4_9_8"),
        ("HEART_BEAT", 3, "63"),
        ("SEND_MESSAGE", 1, "63"),
    }
    cpp = kinds["HEART_BEAT", 1, "63"]
    assert (cpp.total, cpp.last_minute, cpp.remark, cpp.remote) == (2, 2, "second", "10.0.0.3:5")
    assert (cpp.language, cpp.cause, cpp.last_ms) == ("CPP", "codec", clock.now_ms())
    clock.advance_ms(31_000)
    assert {each.last_minute for each in refused.snapshot() if each.total == 2} == {1}
    clock.advance_ms(60_000)
    assert {each.last_minute for each in refused.snapshot()} == {0}
    assert sum(total for _, total in refused.totals()) == 5


def test_one_event_in_ten_seconds_of_a_kind_stands_for_the_others() -> None:
    """The logged and the omitted refusals add up to all; another kind has its own event."""
    refused, clock, log = new_refused_requests()
    for _ in range(100):
        note(refused)
    note(refused, version=409)
    assert [event["left_out"] for event in log.events] == [0, 0]
    event = log.events[0]
    assert (event["event"], event["level"]) == ("request_refused", "warning")
    named = {name: event[name] for name in ("request", "code", "cause", "why", "remote", "language", "version")}
    assert named == {
        "request": "HEART_BEAT",
        "code": 1,
        "cause": "codec",
        "why": "no",
        "remote": "10.0.0.3:5",
        "language": "CPP",
        "version": "63",
    }
    refused.log_left_out()
    assert len(log.events) == 2
    clock.advance_ms(10_000)
    note(refused)
    assert log.events[-1]["left_out"] == 99
    note(refused)
    note(refused)
    refused.log_left_out(all_of_them=True)
    assert log.events[-1]["left_out"] == 1
    refused.log_left_out(all_of_them=True)
    assert sum(1 + event["left_out"] for event in log.events) == 104


def test_what_is_left_out_is_reported_when_nothing_follows() -> None:
    """The check that runs about once a second logs it."""
    refused, clock, log = new_refused_requests()
    note(refused)
    note(refused)
    clock.advance_ms(9_999)
    refused.log_left_out()
    assert len(log.events) == 1
    clock.advance_ms(1)
    refused.log_left_out()
    assert (len(log.events), log.events[-1]["left_out"]) == (2, 0)
    clock.advance_ms(60_000)
    refused.log_left_out()
    assert len(log.events) == 2


def test_a_peer_cannot_make_it_grow() -> None:
    """A peer chooses codes, versions, languages and texts; the sum holds every refusal."""
    refused, _, _ = new_refused_requests()
    for number in range(KINDS_MAX * 4):
        refused.note(
            100_000 + number,
            number,
            Cause.CODEC,
            "x" * 10_000,
            remote="1.2.3.4:5",
            language=number,
            version=number - 7,
            client_id="c" * 10_000,
            group="g" * 10_000,
        )
    totals = refused.totals()
    assert len(totals) <= KINDS_MAX + 1
    assert sum(total for _, total in totals) == KINDS_MAX * 4
    assert {name for (name, *_), _ in totals} == {"unknown", "other"}
    assert len({version for (*_, version), _ in totals}) == VERSIONS_MAX + 1
    snapshot = refused.snapshot()
    assert len(snapshot) == SNAPSHOT_MAX
    assert max(len(each.remark + each.client_id + each.group) for each in snapshot) == 3 * TEXT_LENGTH_MAX


def test_threads_lose_nothing() -> None:
    """Refusals come from every worker thread and from the loop."""
    refused, _, _ = new_refused_requests()

    def refuse() -> None:
        for _ in range(500):
            note(refused)

    threads = [threading.Thread(target=refuse) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [total for _, total in refused.totals()] == [2000]


@pytest.mark.parametrize("cause", sorted(CAUSES_OF_THE_SERVER, key=str))
def test_what_the_server_cannot_do_now_is_no_refusal_of_the_request(cause: Cause) -> None:
    """Flow control and a full disk have their own statistics."""
    assert not is_refusal(RequestCode.HEART_BEAT, 2, cause)


@pytest.mark.parametrize(
    ("request_code", "code", "cause", "expected"),
    [
        (RequestCode.HEART_BEAT, ResponseCode.SYSTEM_ERROR, Cause.CODEC, True),
        (RequestCode.HEART_BEAT, ResponseCode.SYSTEM_ERROR, Cause.INTERNAL, True),
        (RequestCode.SEND_MESSAGE_V2, ResponseCode.MESSAGE_ILLEGAL, Cause.BAD_REQUEST, True),
        (RequestCode.PULL_MESSAGE, ResponseCode.TOPIC_NOT_EXIST, Cause.NO_ROUTE, True),
        (RequestCode.PULL_MESSAGE, ResponseCode.SUBSCRIPTION_NOT_EXIST, Cause.BAD_REQUEST, True),
        (RequestCode.PULL_MESSAGE, ResponseCode.SUBSCRIPTION_NOT_LATEST, Cause.BAD_REQUEST, False),
        (RequestCode.QUERY_ASSIGNMENT, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, Cause.BAD_REQUEST, True),
        (RequestCode.GET_CONSUMER_CONNECTION_LIST, ResponseCode.CONSUMER_NOT_ONLINE, Cause.BAD_REQUEST, False),
        (RequestCode.GET_CONSUMER_RUNNING_INFO, ResponseCode.SYSTEM_ERROR, Cause.BAD_REQUEST, False),
        (RequestCode.GET_CONSUMER_RUNNING_INFO, ResponseCode.SYSTEM_ERROR, Cause.INTERNAL, True),
        (RequestCode.GET_CONSUMER_RUNNING_INFO, ResponseCode.SYSTEM_ERROR, Cause.CODEC, True),
        (RequestCode.GET_ROUTEINFO_BY_TOPIC, ResponseCode.TOPIC_NOT_EXIST, Cause.NO_ROUTE, False),
    ],
)
def test_which_answers_are_refusals(request_code: int, code: int, cause: Cause, expected: bool) -> None:
    """A client's normal requests, and an operator's request for a missing thing, are no refusals."""
    assert is_refusal(request_code, code, cause) is expected


def test_whose_request_it_was() -> None:
    """The group comes from the header, or from a heartbeat's body as far as it is readable."""
    refused, _, _ = new_refused_requests()

    def told(each: Request) -> tuple[str, str]:
        refused.note_request(each, "1.2.3.4:5", 1, Cause.CODEC, "no")
        latest = next(count for count in refused.snapshot() if count.request == RequestCode(each.code).name)
        assert (latest.language, latest.version) == ("GO", "V4_5_2")
        return latest.client_id, latest.group

    leaving = request(35, fields={"clientID": "c@1", "consumerGroup": "billing"})
    assert told(leaving) == ("c@1", "billing")
    body = b'{"clientID":"c@1","consumerDataSet":[{"groupName":"a","unitMode":[]},{"groupName":"b"}],"x":{}}'
    assert told(request(34, body)) == ("c@1", "a,b")
    for garbage in (b"", b"{", b"[]", b'{"clientID":{}}', b'{"consumerDataSet":[{}]}', b"\xff", b"[" * 100_000):
        assert told(request(34, garbage)) == ("", "")


def test_usual_answers_are_not_counted() -> None:
    """``note_request`` calls ``is_refusal``."""
    refused, _, log = new_refused_requests()
    refused.note_request(request(11), "r", int(ResponseCode.SUBSCRIPTION_NOT_LATEST), Cause.BAD_REQUEST, "x")
    refused.note_request(request(34), "r", 2, Cause.QUEUE_FULL, "x")
    assert (refused.totals(), log.events) == ([], [])


@pytest.mark.parametrize(
    ("ordinal", "name"),
    [
        *[
            (409, "V4_9_8"),
            (401, "V4_9_4"),
            (413, "V5_0_0"),
            (475, "V5_3_1"),
            (479, "V5_3_3"),
            (232, "V4_1_0_SNAPSHOT"),
        ],
        *[(231, "231"), (63, "63"), (0, "0"), (-5, "-5"), (612, "612"), (411, "V4_9_9"), (412, "V5_0_0_SNAPSHOT")],
    ],
)
def test_names_of_versions(ordinal: int, name: str) -> None:
    """RocketMQ's names are used where they have a pattern."""
    assert version_name(ordinal) == name
