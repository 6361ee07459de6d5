"""Which slaves a synchronous master counts.

Lives here: ``Members``: who is counted, whose place a new one may take, the number and the claim of the epoch that
this begins.

A promotion asks so many nodes that every set of slaves which can have confirmed a message has one of them. That holds
for ``total_replicas`` - 1 slaves and no more: if another one could confirm while one of them is away, that one could be
promoted without what was confirmed meanwhile. So a set of counted slaves belongs to epochs: before another slave's
acknowledgements count, the master opens an epoch, which only those that follow it then have in their logs, and which
the name servers know; who lacks it is not promoted.
"""

from collections.abc import Callable, Collection
from typing import Final

from pocketmq.common.events import EventLog
from pocketmq.store.ha.state import HaState

COUNT_WITHIN_BYTES: Final = 16 << 20
"""A slave takes another one's place when it lacks less: until it has the new epoch nobody can be promoted."""

ClaimEpoch = Callable[[int, str], str]
"""(number, owner) of an epoch that shall be opened: returns "" when a majority of the name servers has it durably, else
what was in the way."""


class Members:
    """The counted slaves of one run of a synchronous master. The caller serializes; methods write to disk."""

    def __init__(self, state: HaState, total_replicas: int, in_sync_replicas: int, log: EventLog) -> None:
        self.count_max = total_replicas - 1
        self.rule = f"{in_sync_replicas}/{total_replicas}"
        self.claim: ClaimEpoch | None = None
        """Set where there are name servers; called in a worker that may wait for some seconds."""
        self._state = state
        self._log = log
        self._reserved: tuple[int, str] | None = None
        self._told = ""

    def has(self, node_id: str) -> bool:
        """Tell whether a slave is counted."""
        return node_id in self._state.slaves

    def add(self, node_id: str, offset: int) -> bool:
        """Count a slave from now on, if there is room for one that was not counted before; durable when it returns.

        Before its first acknowledgement counts: after a crash the master must know whom to ask for what it lost.
        """
        known = self._state.slaves
        if node_id not in known:
            if len(known) >= self.count_max:
                return False
            self._state.note_slaves({node_id: offset})
        return True

    def without_gone(self, connected: Collection[str], node_id: str) -> tuple[dict[str, int], list[str]]:
        """Return whom an epoch with ``node_id`` shall count beside it, and who loses its place: of those that are away
        no more than necessary, those with the shortest logs.
        """
        kept = {node: offset for node, offset in self._state.slaves.items() if node != node_id}
        away = sorted((node for node in kept if node not in connected), key=lambda node: kept[node])
        gone = away[: max(0, len(kept) - (self.count_max - 1))]
        for node in gone:
            del kept[node]
        return kept, gone

    def reserve(self, node_id: str, gone: list[str]) -> tuple[int, str] | None:
        """Return the epoch in which ``node_id`` shall be counted, when the name servers know it; None if they do not.

        May block for some seconds.
        """
        if self._reserved is None:
            self._reserved = self._state.reserve_members()
        why = "" if self.claim is None else self.claim(*self._reserved)
        if why:
            if why != self._told:
                self._log.warning(
                    "slave_not_counted",
                    node_id=node_id,
                    gone=gone,
                    epoch=self._reserved[0],
                    why=why,
                    hint="it would take the place of one that is away, which a majority of the name servers must know "
                    "first; it gets the log meanwhile",
                )
            self._told = why
            return None
        self._told = ""
        return self._reserved

    def opened(self) -> None:
        """Note that the reserved epoch was opened."""
        self._reserved = None
