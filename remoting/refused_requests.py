"""A trace of every refused request: counted by request, answer, cause, and the client's language and version; logged a
few times a minute.

A refused client often reports nothing: one whose heartbeats are refused is a member of no group and gets no messages.

Lives here: ``RefusedRequests``, and which answers are no refusals.
"""

import threading
from typing import Any, Final

import msgspec

from pocketmq.common.bounds import bounded
from pocketmq.common.clock import Clock
from pocketmq.common.errors import DECODE_ERRORS, Cause
from pocketmq.common.events import EventLog
from pocketmq.remoting.codec import Request
from pocketmq.remoting.codes import LanguageCode, RequestCode, ResponseCode, version_name
from pocketmq.remoting.telemetry import RefusedRequestCount

KINDS_MAX: Final = 256
"""Kinds counted apart; all others together count as one more."""
VERSIONS_MAX: Final = 32
"""Versions counted apart, the first ones seen; a client may announce any number."""
EVENT_INTERVAL_NS: Final = 10_000_000_000
"""Between two events of one kind; refusals in between are counted and logged with the next event."""
SNAPSHOT_MAX: Final = 32
"""Kinds in a snapshot, the most recent ones."""
TEXT_LENGTH_MAX: Final = 300
BODY_BYTES_MAX: Final = 64 << 10
"""A longer body is not read to identify its client."""
OTHER: Final = "other"
UNKNOWN: Final = "unknown"

CAUSES_OF_THE_SERVER: Final = frozenset(
    {
        Cause.QUEUE_FULL,
        Cause.QUEUE_TIMEOUT,
        Cause.PAGE_CACHE_BUSY,
        Cause.NO_WRITE_BUFFER,
        Cause.DISK_FULL,
        Cause.DISK_ERROR,
        Cause.READ_ONLY,
        Cause.FENCED,
        Cause.FENCED_BY_EPOCH,
        Cause.SHUTTING_DOWN,
        Cause.NOT_MASTER,
        Cause.TIMER_CONGESTED,
    }
)
"""The same request would be served at another time or place; the broker's refusal statistics count these."""
_C = ResponseCode
USUAL_ANSWERS: Final = frozenset(
    int(code)
    for code in (
        _C.PULL_NOT_FOUND,
        _C.PULL_RETRY_IMMEDIATELY,
        _C.PULL_OFFSET_MOVED,
        _C.QUERY_NOT_FOUND,
        _C.SUBSCRIPTION_NOT_LATEST,
        _C.FILTER_DATA_NOT_LATEST,
        _C.CONSUMER_NOT_ONLINE,
        _C.CONSUME_MSG_TIMEOUT,
        _C.NO_MESSAGE,
        _C.POLLING_FULL,
        _C.POLLING_TIMEOUT,
    )
)
"""Codes that a correct client meets in normal work."""
_R = RequestCode
LOOKS: Final = frozenset(
    int(code)
    for code in (
        _R.GET_CONSUMER_CONNECTION_LIST,
        _R.GET_PRODUCER_CONNECTION_LIST,
        _R.GET_CONSUMER_RUNNING_INFO,
        _R.CONSUME_MESSAGE_DIRECTLY,
        _R.GET_CONSUME_STATS,
        _R.GET_TOPIC_STATS_INFO,
        _R.GET_TOPIC_CONFIG,
        _R.GET_SUBSCRIPTIONGROUP_CONFIG,
        _R.QUERY_CONSUME_QUEUE,
        _R.QUERY_CONSUME_TIME_SPAN,
        _R.QUERY_TOPIC_CONSUME_BY_WHO,
        _R.VIEW_BROKER_STATS_DATA,
        _R.VIEW_MESSAGE_BY_ID,
        _R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        _R.GET_ROUTEINFO_BY_TOPIC,
    )
)
"""Queries whose object may be missing: "not online" is an answer, not a refusal."""
_NOT_THERE: Final = frozenset({Cause.BAD_REQUEST, Cause.NO_ROUTE})
_MINUTE_S: Final = 60
_SECOND_NS: Final = 1_000_000_000


def is_refusal(request_code: int, code: int, cause: Cause) -> bool:
    """Return whether an answer with ``code`` refuses a request for a reason in the request, or a fault of ours."""
    if cause in CAUSES_OF_THE_SERVER or code in USUAL_ANSWERS:
        return False
    return not (request_code in LOOKS and cause in _NOT_THERE and code != _C.REQUEST_CODE_NOT_SUPPORTED)


class _Kind:
    """Counts of one kind. ``seconds[i]`` counts the second whose number is ``numbers[i]``; the texts are the latest."""

    __slots__ = (
        "client_id",
        "group",
        "last_ms",
        "left_out",
        "next_event_ns",
        "numbers",
        "remark",
        "remote",
        "seconds",
        "total",
    )

    def __init__(self) -> None:
        self.remark = self.remote = self.client_id = self.group = ""
        self.total = 0
        self.left_out = 0
        self.last_ms = 0
        self.next_event_ns = 0
        self.seconds = [0] * _MINUTE_S
        self.numbers = [0] * _MINUTE_S

    def count(self, second: int) -> None:
        at = second % _MINUTE_S
        if self.numbers[at] != second:
            self.numbers[at] = second
            self.seconds[at] = 0
        self.seconds[at] += 1
        self.total += 1

    def last_minute(self, second: int) -> int:
        return sum(
            count for count, number in zip(self.seconds, self.numbers, strict=True) if second - number < _MINUTE_S
        )


_Key = tuple[str, int, str, str, str]
"""Name of the request, response code, cause, language, version."""


class _Sender(msgspec.Struct):
    client_id: str = msgspec.field(name="clientID", default="")
    consumer_data_set: list[dict[str, msgspec.Raw]] | None = msgspec.field(name="consumerDataSet", default=None)


@bounded("kinds of refused requests", limit=KINDS_MAX + 1, size="_kinds", entry_bytes=4096, when_full="evicts")
class RefusedRequests:
    """Counts refused requests and logs them. Thread-safe; never blocks on a disk.

    An event ``request_refused`` has the latest text and client of its kind, and ``left_out``: the refusals of the kind
    since its last event that have none.
    """

    def __init__(self, clock: Clock, log: EventLog) -> None:
        self._clock = clock
        self._log = log
        self._lock = threading.Lock()
        self._kinds: dict[_Key, _Kind] = {}
        self._versions: set[int] = set()

    def note_request(self, request: Request, remote: str, code: int, cause: Cause, remark: str) -> None:
        """Count the refusal of a readable request, unless ``is_refusal`` denies it."""
        if is_refusal(request.code, code, cause):
            client_id, group = _sender(request)
            self.note(
                request.code,
                code,
                cause,
                remark,
                remote=remote,
                language=request.language,
                version=request.version,
                client_id=client_id,
                group=group,
            )

    def note(
        self,
        request_code: int,
        code: int,
        cause: Cause,
        remark: str,
        *,
        remote: str,
        language: int,
        version: int,
        client_id: str = "",
        group: str = "",
    ) -> None:
        """Count one refusal. ``remote``: ip:port; ``language`` and ``version``: from the client's header."""
        now_ns = self._clock.monotonic_ns()
        now_ms = self._clock.now_ms()
        with self._lock:
            key, kind = self._kind(request_code, int(code), cause, language, version)
            kind.count(now_ns // _SECOND_NS)
            kind.last_ms = now_ms
            kind.remark = remark[:TEXT_LENGTH_MAX]
            kind.remote = remote
            kind.client_id = client_id[:TEXT_LENGTH_MAX]
            kind.group = group[:TEXT_LENGTH_MAX]
            logged = kind.total == 1 or now_ns >= kind.next_event_ns
            if logged:
                left_out, kind.left_out = kind.left_out, 0
                kind.next_event_ns = now_ns + EVENT_INTERVAL_NS
            else:
                kind.left_out += 1
        if logged:
            self._log_kind(key, kind, left_out)

    def log_left_out(self, *, all_of_them: bool = False) -> None:
        """Log the refusals left out whose next event is due. Any thread."""
        now_ns = self._clock.monotonic_ns()
        due: list[tuple[_Key, _Kind, int]] = []
        with self._lock:
            for key, kind in self._kinds.items():
                if kind.left_out and (all_of_them or now_ns >= kind.next_event_ns):
                    due.append((key, kind, kind.left_out - 1))  # the event stands for one of them
                    kind.left_out = 0
                    kind.next_event_ns = now_ns + EVENT_INTERVAL_NS
        for key, kind, left_out in due:
            self._log_kind(key, kind, left_out)

    def totals(self) -> list[tuple[tuple[str, str, str, str, str], int]]:
        """Return the count of each kind since the start: (request, response code, cause, language, version)."""
        with self._lock:
            return [
                ((name, str(code), cause, language, version), kind.total)
                for (name, code, cause, language, version), kind in self._kinds.items()
            ]

    def snapshot(self) -> list[RefusedRequestCount]:
        """Return the most recent kinds, the latest first. Any thread."""
        second = self._clock.monotonic_ns() // _SECOND_NS
        with self._lock:
            counts = [
                RefusedRequestCount(
                    request=name,
                    code=code,
                    cause=cause,
                    language=language,
                    version=version,
                    remark=kind.remark,
                    remote=kind.remote,
                    client_id=kind.client_id,
                    group=kind.group,
                    total=kind.total,
                    last_minute=kind.last_minute(second),
                    last_ms=kind.last_ms,
                )
                for (name, code, cause, language, version), kind in self._kinds.items()
            ]
        return sorted(counts, key=lambda count: -count.last_ms)[:SNAPSHOT_MAX]

    def _kind(self, request_code: int, code: int, cause: Cause, language: int, version: int) -> tuple[_Key, _Kind]:
        if version not in self._versions and len(self._versions) < VERSIONS_MAX:
            self._versions.add(version)
        key = (
            RequestCode(request_code).name if request_code in _REQUEST_CODES else UNKNOWN,
            code,
            cause.value,
            LanguageCode(language).name if language in _LANGUAGES else LanguageCode.OTHER.name,
            version_name(version) if version in self._versions else OTHER,
        )
        if key not in self._kinds and len(self._kinds) >= KINDS_MAX:
            key = (OTHER, 0, OTHER, OTHER, OTHER)
        return key, self._kinds.setdefault(key, _Kind())

    def _log_kind(self, key: _Key, kind: _Kind, left_out: int) -> None:
        name, code, cause, language, version = key
        self._log.warning(
            "request_refused",
            request=name,
            code=code,
            cause=cause,
            why=kind.remark,
            remote=kind.remote,
            language=language,
            version=version,
            client_id=kind.client_id,
            group=kind.group,
            left_out=left_out,
        )


_REQUEST_CODES: Final = frozenset(int(code) for code in RequestCode)
_LANGUAGES: Final = frozenset(int(language) for language in LanguageCode)


def _sender(request: Request) -> tuple[str, str]:
    """Return client id and group, as far as the header or the body of an unreadable heartbeat has them."""
    header: Any = request.header
    client_id = str(getattr(header, "client_id", "") or "")
    for field in ("consumer_group", "producer_group", "group"):
        group = getattr(header, field, "")
        if group:
            return client_id, str(group)
    if request.code == RequestCode.HEART_BEAT and len(request.body) <= BODY_BYTES_MAX:
        try:
            sender = msgspec.json.decode(request.body, type=_Sender)
            groups = [bytes(each["groupName"]).decode().strip('"') for each in sender.consumer_data_set or ()]
        except (*DECODE_ERRORS, KeyError):
            return "", ""
        return sender.client_id, ",".join(groups[:8])
    return client_id, ""
