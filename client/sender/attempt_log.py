"""Failed sends in the client's log: counted by broker and answer, written at most every ten seconds.

Lives here: ``AttemptLog`` and its event ``send_attempts``.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from pocketmq.client.errors import Attempt
from pocketmq.common.events import EventLog

INTERVAL_S: Final = 10.0
KINDS_MAX: Final = 8
"""Kinds counted separately in one interval; further ones are counted together."""
ANSWER_CHARACTERS_MAX: Final = 300
TAG_CHARACTERS_MAX: Final = 26

_Kind = tuple[str, str, int, str, str]


@dataclass(slots=True)
class _Count:
    answer: str
    messages: int = 0
    again: int = 0
    ended: int = 0
    longest_ms: float = 0.0


class AttemptLog:
    """Counts failed attempts; a successful attempt costs nothing. Event loop only.

    The event ``send_attempts`` has the ``count`` of messages, how many of them were tried ``again`` and how many of
    them ``ended`` with this answer, the longest wait for it, and the latest text. Logged at info: the caller already
    gets the error, and applications that have not configured logging should stay quiet. ``text`` is RocketMQ's line
    (``DefaultMQProducerImpl``, with the text of its exception); its InvokeID is the number of the event, and its RT the
    longest.

    It is no stage of the producer: it counts attempts, also those of sections that succeed later.
    """

    def __init__(self, group: str, log: EventLog) -> None:
        self._group = group
        self._log = log
        self._kinds: dict[_Kind, _Count] = {}
        self._begin_s = 0.0
        self._lines = 0
        self._handle: asyncio.TimerHandle | None = None

    def note(self, attempt: Attempt, messages: int, *, again: bool) -> None:
        """Count one attempt that failed."""
        text = attempt.answer
        tag = text[1 : text.find("]")] if text.startswith("[") and "]" in text[:TAG_CHARACTERS_MAX] else ""
        cause = "" if attempt.cause is None else attempt.cause.value
        kind: _Kind = (attempt.broker, attempt.phase, attempt.answer_code, cause, tag)
        if kind not in self._kinds and len(self._kinds) >= KINDS_MAX:
            kind = ("", "others", 0, "", "")
        count = self._kinds.get(kind)
        if count is None:
            count = self._kinds[kind] = _Count("")
        count.answer = text[:ANSWER_CHARACTERS_MAX]
        count.messages += messages
        if again:
            count.again += messages
        else:
            count.ended += messages
        count.longest_ms = max(count.longest_ms, attempt.elapsed_ms)
        if self._handle is None:
            loop = asyncio.get_running_loop()
            self._begin_s = loop.time()
            self._handle = loop.call_later(INTERVAL_S, self.report)

    def report(self) -> None:
        """Log the counts and start over."""
        handle, self._handle = self._handle, None
        if handle is None:
            return
        handle.cancel()
        for_ms = max(1, int((asyncio.get_running_loop().time() - self._begin_s) * 1000))
        kinds, self._kinds = self._kinds, {}
        for (broker, phase, code, cause, tag), count in kinds.items():
            self._lines += 1
            text = (
                f"sendKernelImpl exception, resend at once, InvokeID: {self._lines}, RT: {count.longest_ms:.0f}ms, "
                f"Broker: {broker}, {f'CODE: {code}  DESC: ' if phase == 'answer' else ''}{count.answer}"
            )
            self._log.info(
                "send_attempts",
                text=text,
                group=self._group,
                broker=broker,
                for_ms=for_ms,
                phase=phase,
                code=code,
                cause=cause,
                tag=tag,
                count=count.messages,
                again=count.again,
                ended=count.ended,
                longest_ms=round(count.longest_ms, 1),
                answer=count.answer,
            )
