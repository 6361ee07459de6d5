"""What one connection may send and get in a second: the buckets of its client, its address and its user.

    refused = quota.refusal(request, now_ns)     # before anything is done with the request

What comes in is paid when it is here: all bytes of every frame, and the messages of those that store some. Only such
requests are refused. Heartbeats, offsets, locks, the ends of transactions and all questions are let through: a client
that may send no more for a while must not lose its place in its group for that. What goes out is paid when it has gone:
how much that is, nobody knows before.

Buckets are shared by connections and used by the loop and by the threads that serve pulls; one lock guards them all,
held for a few additions.

Lives here: ``Quota``, ``Buckets``, ``QuotaExceeded``, ``TooManyWrong``, ``messages_of``.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pocketmq.common import refusals
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.remoting.codec import Request
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.limits.token_bucket import TokenBucket, take_all

RETRY_AFTER_MS_MAX: Final = refusals.REFUSALS[Cause.QUOTA].retry_after.ms_max
FRAME_HEAD_BYTES: Final = 8
SIZE_BYTES: Final = 4
"""Of each record in the body of a native send: so a frame has at most so many records, whatever it says."""
_UNITS: Final = {
    "bytes_in": "bytes sent",
    "messages_in": "messages sent",
    "bytes_out": "bytes pulled",
    "messages_out": "messages pulled",
}
_R = RequestCode
_ONE_BY_ONE: Final = frozenset(
    map(
        int,
        (
            _R.SEND_MESSAGE,
            _R.SEND_MESSAGE_V2,
            _R.SEND_BATCH_MESSAGE,
            _R.SEND_REPLY_MESSAGE,
            _R.SEND_REPLY_MESSAGE_V2,
            _R.CONSUMER_SEND_MSG_BACK,
        ),
    )
)
_IN_SECTIONS: Final = frozenset(map(int, (_R.NATIVE_APPEND, _R.NATIVE_HALF_APPEND, _R.STAGED_TRANSACTION_WRITE)))


class QuotaExceeded(PocketMQError):
    """A limit of a client, an address or a user is reached; nothing was carried out. ``str`` is the text for the
    wire."""

    code = 2  # SYSTEM_BUSY
    retriable = True
    default_cause = Cause.QUOTA


class TooManyWrong(QuotaExceeded):
    """Proofs or signatures of this address are not looked at for now; the connection ends with the answer, so that a
    flood of them costs one answer a connection."""


def exceeded(text: refusals.Text, *values: object, retry_after_ms: int = 0) -> QuotaExceeded:
    """Return the error with a text of the table of refusals."""
    return QuotaExceeded(text.template % values, retry_after_ms=min(retry_after_ms, RETRY_AFTER_MS_MAX))


def rate_exceeded(bucket: TokenBucket, now_ns: int) -> QuotaExceeded:
    """Return the refusal by a bucket that is not open."""
    limit = bucket.limit
    wait_ms = bucket.wait_ns(now_ns) // 1_000_000 + 1
    values = (limit.whose, _UNITS[limit.kind], limit.rate, limit.setting)
    return exceeded(refusals.QUOTA_RATE, *values, retry_after_ms=wait_ms)


def slowest(buckets: Sequence[TokenBucket], now_ns: int) -> TokenBucket | None:
    """Return the bucket that is closed for longest; None: all are open. A client that waits for another one would come
    in vain."""
    found, longest_ns = None, 0
    for bucket in buckets:
        wait_ns = bucket.wait_ns(now_ns)
        if wait_ns > longest_ns:
            found, longest_ns = bucket, wait_ns
    return found


def messages_of(request: Request) -> int | None:
    """Return how many messages a request stores, of RocketMQ's batches only the first; None: it is no send."""
    if request.code in _IN_SECTIONS:
        header: Any = request.header
        count: int = sum(max(count, 0) for _, _, count in header.sections)
        return min(count, len(request.body) // SIZE_BYTES)
    return 1 if request.code in _ONE_BY_ONE else None


@dataclass(slots=True)
class Buckets:
    """The buckets of a client, an address or a user."""

    inbound: list[TokenBucket] = field(default_factory=list)
    outbound: list[TokenBucket] = field(default_factory=list)


class Quota:
    """The buckets of one connection. Any thread."""

    __slots__ = ("_lock", "_note", "client", "inbound", "outbound")

    def __init__(
        self,
        inbound: Sequence[TokenBucket],
        outbound: Sequence[TokenBucket],
        client: Buckets | None,
        lock: threading.Lock,
        note: Callable[[str, QuotaExceeded], None],
    ) -> None:
        """``client``: those of them that no other connection shares. ``note(kind, error)`` is called with each refusal,
        in its thread."""
        self.client = client
        self.inbound = tuple(inbound)
        self.outbound = tuple(outbound)
        self._lock = lock
        self._note = note

    # ---- what comes in ---------------------------------------------------------------------------------------------

    def take(self, messages: int, size_bytes: int, now_ns: int) -> TokenBucket | None:
        """Pay for a frame and return None, or return a bucket that is not open."""
        with self._lock:
            return take_all(self.inbound, messages, size_bytes, now_ns)

    def owe(self, messages: int, size_bytes: int, now_ns: int) -> None:
        """Pay for what has come in already, open or not; with numbers below 0 take it back."""
        with self._lock:
            for bucket in self.inbound:
                bucket.take(size_bytes if bucket.counts_bytes else messages, now_ns)

    def refusal(self, request: Request, now_ns: int) -> QuotaExceeded | None:
        """Pay for a request; return why it may not be carried out, or None."""
        messages = messages_of(request)
        size_bytes = FRAME_HEAD_BYTES + request.header_bytes + len(request.body)
        if messages is None:
            self.owe(0, size_bytes, now_ns)
            return None
        if self.take(messages, size_bytes, now_ns) is None:
            return None
        with self._lock:
            bucket = slowest(self.inbound, now_ns)
        return None if bucket is None else self.refused_by(bucket, now_ns)

    # ---- what goes out ---------------------------------------------------------------------------------------------

    def closed_by(self, now_ns: int) -> TokenBucket | None:
        """Return the bucket that lets nothing out now, of several the one that is closed for longest; None: all are
        open."""
        with self._lock:
            return slowest(self.outbound, now_ns)

    def sent(self, messages: int, size_bytes: int, now_ns: int) -> None:
        """Pay for messages that leave in an answer."""
        with self._lock:
            for bucket in self.outbound:
                bucket.take(size_bytes if bucket.counts_bytes else messages, now_ns)

    def refused_by(self, bucket: TokenBucket, now_ns: int) -> QuotaExceeded:
        """Count and return the refusal of a request by a bucket."""
        error = rate_exceeded(bucket, now_ns)
        self._note(bucket.limit.kind, error)
        return error
