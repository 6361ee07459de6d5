"""What pasted lines mean: the known texts in them, each once, the cause of an exception before what it led to.

Lives here: ``explain_line``, ``explain``, ``Explanation``; who sends again after a response code.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from pocketmq.common.errors import Cause, Stored
from pocketmq.common.known_texts.codes import Code, code_of
from pocketmq.common.known_texts.search import LINE_CHARS_MAX, Hit, cleaned, find_all
from pocketmq.common.known_texts.words import NO_ONE, NOT_AGAIN, PULL_AGAIN, STATUS_AGAIN, SYNC_AGAIN
from pocketmq.common.refusal_row import Request, Retry, Row, Side, retried_by

OVERLAP_CHARS: Final = 1024
"""Of two pieces of a long line, so that a text at the cut is in one of them."""
EXPLANATIONS_MAX: Final = 64
OUTER_MAX: Final = 8
_CODE: Final = re.compile(
    r"\bCODE: {0,4}(\d{1,6})\b"  # MQBrokerException
    r"|\"code\": ?(\d{1,6})\b|(?<!exit )\bcode=(\d{1,6})\b"  # our logs
    r"|\b(?:[Aa]nswer|[Rr]esponse)[ _]?[Cc]ode(?: is)?[=: ]{1,3}(\d{1,6})\b|\banswered (\d{1,6})\b"
)
_NAME: Final = re.compile(r"\b[A-Z]{2,20}(?:_[A-Z]{1,20}){1,6}\b")
_CAUSE: Final = re.compile(r"\b(?:cause[=:\"' ]{1,4}|refused_)([a-z_]{4,20})\b")
_STORED: Final = re.compile(r"(?:[\[,] ?stored |\bstored[\"']?[=:] ?[\"']?)(yes|no|unknown)(?=[,\]\"'\s}]|$)")
_NEW_RECORD: Final = re.compile(r"\{\"|\W{0,3}(?:\d{4}[-/]\d\d[-/]\d\d|\d\d:\d\d:\d\d)")
_ATTEMPT: Final = re.compile(r" {1,8}\d{1,3}\. \S{1,200} \[[^]]{1,200}\] (?:route|connect|local|send|answer|stored)\b")
"""A line of our SendFailed: one attempt."""
_CAUSES: Final = frozenset(cause.value for cause in Cause)
_STORED_WITH_A_STATUS: Final = (10, 11, 12)
_OF_CONNECTIONS: Final = (10001, 10002, 10003)
_GOES_ON: Final = ("See http", "For more information", "...")
"""What RocketMQ adds to the text of an exception, and Java to its lines."""
_LED_TO: Final = ("The above exception was the direct cause", "During handling of the above exception")


@dataclass(slots=True, kw_only=True)
class Explanation:
    """What one text means.

    ``rows``: what it may mean, empty for a code alone; ``codes``: the meanings of its response code. ``stored`` None:
    it is not about a send. ``retried``: who sends again. ``outer``: the exceptions that this one led to, as they stand
    in the paste. ``times``: the lines that have it. ``whole`` False: the text is cut off, so that it may be another
    one.
    """

    key: str
    text: str
    rows: tuple[Row, ...] = ()
    codes: tuple[Code, ...] = ()
    by: Side = Side.BROKER
    source: str = ""
    scenario: str = ""
    stored: Stored | None = None
    retried: str = ""
    values: tuple[str, ...] = ()
    outer: list[str] = field(default_factory=list)
    times: int = 1
    whole: bool = True
    wraps: bool = False


def retried_words(code: int, code_4_9: int | None = None) -> str:
    """Say who sends again by default after a response code; ``code_4_9``: the one before 5.3, where it differs.

    >>> retried_words(13)
    'no client: the send ends with it'
    """
    if code in _STORED_WITH_A_STATUS:
        return STATUS_AGAIN
    if code in _OF_CONNECTIONS:
        return SYNC_AGAIN
    old = Retry.ROCKETMQ_4_9 in retried_by(code_4_9 or code)
    new = Retry.ROCKETMQ_5_3 in retried_by(code)
    only = "; an asynchronous send of RocketMQ, and one with a selector, ends with the answer"
    if old:
        there = f" (there the code is {code_4_9})" if code_4_9 else ""
        return f"synchronous sends of RocketMQ 4.9 to 5.2{there}, RocketMQ 5.3 and PocketMQ try another broker{only}"
    if not new:
        return NOT_AGAIN
    return (
        "RocketMQ 4.9 to 5.2: no, the send ends with it, although another broker may be free; from 4.9.2 on the "
        f"application can add the code: producer.addRetryResponseCode({code}). Synchronous sends of RocketMQ 5.3 and "
        f"PocketMQ try another broker{only}"
    )


def explain_line(text: str) -> Explanation | None:
    """Return what the first known text in one line means; None: nothing in it is known.

    A text that only carries another one counts if it stands alone.
    A line of a log with nothing known in it costs some 20 µs. Only its first ``LINE_CHARS_MAX`` characters count.
    """
    found = list(_of_line(text[:LINE_CHARS_MAX]))
    return next((each for each in found if not each.wraps), found[0] if found else None)


def explain(lines: Iterable[str]) -> list[Explanation]:
    """Return what the known texts in these lines mean, each once, in their order.

    Exceptions that belong together (``Caused by``, Python's "direct cause", a line of a log above its exception) give
    one explanation: that of the innermost one that is known; ``outer`` has the others.
    """
    found = _Found()
    for line in lines:
        found.add(line)
    return found.end()


def pieces(line: str) -> Iterator[str]:
    """Yield a line in pieces that overlap."""
    yield line[:LINE_CHARS_MAX]
    for begin in range(LINE_CHARS_MAX - OVERLAP_CHARS, len(line) - OVERLAP_CHARS, LINE_CHARS_MAX - OVERLAP_CHARS):
        yield line[begin : begin + LINE_CHARS_MAX]


class _Found:
    """Puts what was found line by line together."""

    def __init__(self) -> None:
        self._done: dict[str, Explanation] = {}
        self._waiting: list[Explanation] = []
        """Texts that only carry another one, which may follow."""
        self._last: Explanation | None = None
        """The innermost of the chain that the next ``Caused by`` goes on with."""
        self._led_to = False
        self._attempted: list[str] | None = None
        """What the error says whose attempts the lines now are."""
        self._heads: list[Explanation] = []
        """Of the last line with a known text."""

    def add(self, line: str) -> None:
        """Take the next line."""
        if not line or line.isspace():
            return
        if self._waiting and _NEW_RECORD.match(line):
            self._flush()
        if line.startswith(_LED_TO):
            self._led_to = True
            return
        caused = line.lstrip()[:10].lower().startswith("caused by:")
        if not caused and not self._led_to and not line[0].isspace() and not line.startswith(_GOES_ON):
            self._last = None
        there: dict[str, Explanation] = {}
        for piece in pieces(line):
            for each in _of_line(piece):
                if each.key not in there or each.whole > there[each.key].whole:
                    there[each.key] = each
        attempted = _ATTEMPT.match(line) is not None
        if not attempted:
            self._attempted = None
        elif there and self._attempted is None:
            self._attempted = self._led_to_attempts()
        for each in there.values():
            if attempted:
                self._outer(each, self._attempted or ())
                self._keep(each)
            else:
                self._link(each, caused)
        if there and not attempted:
            self._heads = [self._done[key] for key in there if key in self._done]

    def _led_to_attempts(self) -> list[str]:
        """Return what the error above its attempts says, which is no explanation of its own."""
        waiting, self._waiting = self._waiting, []
        heads = self._heads if waiting else []
        for head in heads:
            self._forget(head)
        return [each.text for each in (*heads, *waiting)]

    def _forget(self, each: Explanation) -> None:
        each.times -= 1
        if not each.times:
            del self._done[each.key]

    def _link(self, each: Explanation, caused: bool) -> None:
        if self._led_to and self._last is not None:
            self._led_to = False
            self._outer(self._last, [each.text])
            if each.key == self._last.key:
                self._last.times += 1
        elif each.wraps:
            if not (caused and self._last is not None):
                if len(self._waiting) == OUTER_MAX:
                    self._flush()
                self._waiting.append(each)
        elif caused and self._last is not None and not self._waiting:
            led_to = self._last
            self._forget(led_to)
            self._outer(each, [*led_to.outer, led_to.text])
            self._keep(each)
        else:
            self._outer(each, [outer.text for outer in self._waiting])
            self._waiting.clear()
            self._keep(each)

    def _keep(self, each: Explanation) -> None:
        known = self._done.get(each.key)
        if known is not None:
            known.times += 1
            self._outer(known, each.outer)
            self._last = known
        elif len(self._done) < EXPLANATIONS_MAX:
            self._last = self._done[each.key] = each

    @staticmethod
    def _outer(each: Explanation, texts: Sequence[str]) -> None:
        for text in texts:
            if len(each.outer) < OUTER_MAX and text not in (each.text, *each.outer):
                each.outer.append(text)

    def _flush(self) -> None:
        """Explain what carried nothing that is known."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._outer(waiting[-1], [outer.text for outer in waiting[:-1]])
            self._keep(waiting[-1])

    def end(self) -> list[Explanation]:
        """Return all of them."""
        self._flush()
        return list(self._done.values())


def _of_line(line: str) -> Iterator[Explanation]:
    hits = find_all(line)
    texts = [hit for hit in hits if not hit.known.is_class]
    details = [hit for hit in texts if hit.known.text.by is Side.SYSTEM]
    if len(details) < len(texts):  # what the system said is a detail of what the program says about it
        texts = [hit for hit in texts if hit not in details]
    code = _code_in(line)
    cause = next((each[1] for each in _CAUSE.finditer(line) if each[1] in _CAUSES), "") if texts else ""
    for hit in texts:
        yield _of_hit(hit, line, code, cause)
    if all(hit.known.rows[0].wraps for hit in texts):
        alone = _of_codes(line, code)
        if alone is not None:
            yield alone
        elif not texts:
            yield from (_of_hit(hit, line, code, cause) for hit in hits)


def _of_hit(hit: Hit, line: str, code: int | None, cause: str) -> Explanation:
    known, text = hit.known, hit.known.text
    rows = known.rows[:1] if known.rows[0].key else known.rows
    rows = tuple(row for row in known.rows if row.cause.value == cause) or rows
    row = rows[0]
    answered = text.code if code is None else code
    said = _STORED.search(line)
    stored = Stored(said[1]) if said else row.stored if len({each.stored for each in rows}) == 1 else Stored.UNKNOWN
    if text.request is Request.PULL:
        retried = PULL_AGAIN
    elif text.request is Request.OTHER:
        retried = NO_ONE
    else:
        retried = retried_words(answered, text.code_4_9 if code is None else None)
    return Explanation(
        key=row.name if row.key else f"{row.name}:{text.template}",
        text=hit.shown,
        rows=rows,
        codes=tuple(code_of(str(answered))) if answered else (),
        by=text.by,
        source=text.source or row.source,
        scenario=text.scenario or row.scenario,
        stored=stored if text.request is Request.SEND else None,
        retried=row.retried or retried,
        values=hit.values,
        whole=hit.whole,
        wraps=row.wraps,
    )


def _code_in(line: str) -> int | None:
    if "ode" not in line.lower() and "answered" not in line:
        return None
    match = _CODE.search(line)
    return int(match[match.lastindex or 0]) if match is not None else None


def _of_codes(line: str, code: int | None) -> Explanation | None:
    """Explain a line by its response code, or by the name of one."""
    meanings = tuple(code_of(str(code))) if code else ()
    shown = line.strip()
    if not meanings:
        for name in _NAME.finditer(line) if "_" in line else ():
            meanings = tuple(each for each in code_of(name[0]) if each.number)
            if meanings:
                shown = name[0]
                break
    if not meanings:
        return None
    return of_code(meanings, cleaned(shown)[:200])


def of_code(meanings: tuple[Code, ...], shown: str) -> Explanation:
    """Return the explanation of a response code alone."""
    first = meanings[0]
    stored = first.stored if len({each.stored for each in meanings}) == 1 else None
    return Explanation(
        key=f"code {first.number}",
        text=shown,
        codes=meanings,
        by=Side.CLIENT if first.of_client else Side.BROKER,
        stored=stored,
        retried=retried_words(first.number) if stored is not None else "",
    )
