"""What RocketMQ's clients and their applications log of a send that failed: two facts, the broker's and the client's.

Lives here: ``failed_send`` (one attempt), ``ended_send`` (the exception that an application logs), what texts mean.
"""

import functools
import re
from collections.abc import Iterator
from typing import Final

from pocketmq.common.errors import Cause
from pocketmq.common.refusals import RETRIED_SINCE_4_9, RETRIED_SINCE_5_3, find
from pocketmq.pipeline.jobs.flow_control.facts import TAGS
from pocketmq.pipeline.jobs.flow_control.rocketmq.lines import Entry
from pocketmq.pipeline.jobs.flow_control.rocketmq.said import BROKER, NUMBER, Said, name_in

_SENT_TO: Final = re.compile(rb"BrokersSent: \[(?:[^\]]{0,2000}, )?([^,\]\s]{1,127})\]")
_RT: Final = re.compile(rb"(?:RT: |cost \[|cost=)(\d{1,12})")
ANSWER: Final = re.compile(rb"CODE:\s*(-?\d{1,9})\s+DESC:\s*(.{0,2000}?)(?:\s+BROKER:.*)?$")
_TAG: Final = re.compile(rb"\[(%s)\]" % "|".join(sorted(TAGS)).encode())
_CAUSES: Final = {
    "TIMEOUT_CLEAN_QUEUE": Cause.QUEUE_TIMEOUT.value,
    "REJECTREQUEST": Cause.PAGE_CACHE_BUSY.value,
    "PCBUSY_CLEAN_QUEUE": Cause.PAGE_CACHE_BUSY.value,
    "PC_SYNCHRONIZED": Cause.PAGE_CACHE_BUSY.value,
    "OVERLOAD": Cause.QUEUE_FULL.value,
}
"""What a tag means where the words after it are not RocketMQ's to the letter: retyped, cut, with other blanks."""
SYSTEM_BUSY: Final = 2
EXCEPTIONS: Final = (b"MQBrokerException", b"RemotingTooMuchRequestException", b"RemotingTimeoutException",
                     b"RemotingConnectException", b"RemotingSendRequestException", b"MQClientException")  # fmt: skip


def failed_send(entry: Entry, text: bytes) -> Iterator[Said]:
    """A client's attempt: "sendKernelImpl exception, resend at once" and "throw exception", with its stack trace."""
    broker, took = BROKER.search(text), _RT.search(text)
    target = name_in(broker[1]) if broker else ""
    took_ms = float(took[1]) if took else 0.0
    why = next((line for line in entry.extras if any(words in line for words in EXCEPTIONS)), text)
    yield from _attempt(why, target, took_ms, entry.client_5, ends=b"throw exception" in text)


def ended_send(entry: Entry, text: bytes) -> Iterator[Said]:
    """What an application logs: the exception that its send ended with."""
    whole = (text, *entry.extras)
    sent = next((match for line in whole if (match := _SENT_TO.search(line))), None)
    took = next((match for line in whole if (match := _RT.search(line))), None)
    why = next((line for line in whole if ANSWER.search(line)), None)
    why = why or next((line for line in whole if any(words in line for words in EXCEPTIONS)), text)
    target = name_in(sent[1]) if sent else ""
    yield from _attempt(why, target, float(took[1]) if took else 0.0, entry.client_5, ends=True)


def _attempt(why: bytes, target: str, took_ms: float, client_5: bool, *, ends: bool) -> Iterator[Said]:
    answer = ANSWER.search(why)
    said = why if answer is None else answer[2]
    if (answer is not None and b"MQClientException" not in why) or _TAG.search(why):
        code = int(answer[1]) if answer is not None else SYSTEM_BUSY
        tag, cause = _meaning(NUMBER.sub(b"0", said[:300]))
        again = not ends and (code in RETRIED_SINCE_4_9 or (client_5 and code in RETRIED_SINCE_5_3))
        if cause:
            yield Said("refusal", "line", target, cause, tag, code)
        phase = "answer"
    else:
        code, tag, again = 0, "", not ends
        phase, cause = _phase(why)
    yield Said("attempt", phase, target, cause, tag, code, 1, int(again), int(not again), value=took_ms)


def _phase(why: bytes) -> tuple[str, str]:
    if b"RemotingConnectException" in why:
        return "connect", Cause.CONNECTION.value
    if b"RemotingTimeoutException" in why or b"call timeout" in why:
        return "send", Cause.TIMEOUT.value
    if b"RemotingSendRequestException" in why:
        return "send", Cause.CONNECTION.value
    if b"RemotingTooMuchRequestException" in why:
        return "local", ""
    if b"No route info" in why or b"No topic route info" in why:
        return "route", Cause.NO_ROUTE.value
    return "others", ""


@functools.lru_cache(maxsize=512)
def _meaning(text: bytes) -> tuple[str, str]:
    """Return tag and cause of a broker's text, digits made 0."""
    said = text.decode("utf-8", "replace")
    match = _TAG.search(text)
    tag = match[1].decode() if match else ""
    rows = [match for match in find(said) if match.text is not None] if said else []
    return tag, rows[0].row.cause.value if rows else _CAUSES.get(tag, "")


def failed_wait(entry: Entry, text: bytes) -> Iterator[Said]:
    """Yield what a request without an answer says; a route that is missing at first is no failure."""
    if b"CODE: 17" not in text:
        yield from ended_send(entry, text)
