"""One frame of the short path that waits for its answer: receipts for its messages, or the sections they become.

Lives here: ``ShortAppend``.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pocketmq.client.message.receipts import Receipt, ShortOutcome
from pocketmq.client.producer.short_targets import ShortLine, ShortSend, ShortTarget
from pocketmq.client.sender.section import Section
from pocketmq.common.errors import PocketMQError
from pocketmq.remoting.codec import Response
from pocketmq.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from pocketmq.client.producer.short_path import ShortPath

ONE: Final = (1,)
"""The counts of a frame with a single record."""
_SUCCESS: Final = int(ResponseCode.SUCCESS)


class ShortAppend(msgspec.Struct):
    """One frame that waits for its answer (``remoting.pending.Waiting``); times are monotonic ns, ``born_ms`` wall."""

    request_code: int
    started_ns: int
    deadline_ns: int
    turn: int
    counts: tuple[int, ...]
    path: "ShortPath"
    line: ShortLine
    parts: list[tuple[ShortTarget, list[ShortSend]]]
    keys: list[bytes]
    sizes: list[int]
    size_bytes: int
    born_ms: int

    def stored(self, places: Sequence[tuple[int, int]]) -> None:
        """Settle all messages: everything was stored at the first attempt, with SEND_OK."""
        path, keys, sizes = self.path, self.keys, self.sizes
        # Before anything of the callers runs: a retry that needs tokens must find what this answer has earned.
        path.budget_stored(self.line.connection.broker_name)
        if path.faults is not None:
            path.answered(self.line.connection.broker_name, self.started_ns)
        if self.counts is ONE:
            path.in_flight.remove(self.size_bytes, 1, False)
            target, sends = self.parts[0]
            first, start = places[0]
            future = sends[0][1]
            if not future.done():  # cancelled by the caller meanwhile
                future.set_result(Receipt(ShortOutcome(target.at, first, start, sizes), 0, keys[0]))
            return
        path.in_flight.remove(self.size_bytes, len(keys), False)
        at = 0
        for (target, sends), (first, start) in zip(self.parts, places, strict=True):
            end = at + len(sends)
            outcome = ShortOutcome(target.at, first, start, sizes[at:end])
            for index, (_, future, _, _, _) in enumerate(sends):
                if not future.done():
                    future.set_result(Receipt(outcome, index, keys[at + index]))
            at = end

    def done(self, result: Any) -> None:
        """Take an answer in another form, or an error."""
        places = self._places(result)
        if places is not None:
            self.stored(places)
        else:
            self.path.usual(self, result)

    def _places(self, result: Response | PocketMQError) -> list[tuple[int, int]] | None:
        """Return (first queue offset, physical offset) of each section if all is stored, each section in one run."""
        header: Any = result.header if isinstance(result, Response) and result.code == _SUCCESS else None
        if header is None or len(header.results) != len(self.counts):
            return None
        places: list[tuple[int, int]] = []
        for (code, first, runs, _), count in zip(header.results, self.counts, strict=True):
            if code != _SUCCESS or len(runs) != 1 or runs[0][1] != count:
                return None
            places.append((first, runs[0][0]))
        return places

    def sections(self) -> list[Section]:
        """Return what the usual way would have sent in this frame."""
        path, line = self.path, self.line
        sections: list[Section] = []
        at = 0
        for target, sends in self.parts:
            end = at + len(sends)
            section = Section(
                None,
                target.queue,
                build=line.builder.build,
                started_ns=self.started_ns,
                deadline_ns=self.started_ns + path.timeout_ns,
                born_ms=self.born_ms,
                attempts_max=path.attempts_max,
            )
            section.messages = [send[0] for send in sends]
            section.futures = [send[1] for send in sends]
            section.uniq_keys = self.keys[at:end]
            section.records = [
                line.builder.build(message, target.queue_id, key, self.born_ms)
                for message, key in zip(section.messages, section.uniq_keys, strict=True)
            ]
            section.size_bytes, section.permits = sum(self.sizes[at:end]), len(sends)
            sections.append(section)
            at = end
        return sections
