"""Which slaves a synchronous master counts.

Lives here: ``Members``: the counted slaves, the place that a new one may take, the number and the claim of the epoch
that this begins.

A promotion asks so many nodes that every set of slaves able to confirm a message includes one of them. That holds for
at most ``total_replicas`` - 1 slaves: if another one could confirm while one of them is away, the absent one could be
promoted without the messages confirmed meanwhile. So a set of counted slaves belongs to epochs: before another slave's
acknowledgements count, the master opens an epoch, which only its present followers have in their logs and which the
name servers know; a node without this epoch is not promoted.
"""

from collections.abc import Callable, Collection
from typing import Final

from pocketmq.store.ha.environment import HaEnvironment

COUNT_WITHIN_BYTES: Final = 16 << 20
"""A slave takes another one's place when it lacks less: until it has the new epoch, no node can be promoted."""

ClaimEpoch = Callable[[int, str], str]
"""Called with (number, owner) of an epoch about to be opened: returns "" when a majority of the name servers has it
durably, else the reason why not."""


class Members:
    """The counted slaves of one run of a synchronous master. The caller serializes; methods write to disk."""

    def __init__(self, environment: HaEnvironment) -> None:
        config = environment.store.config
        self.count_max = config.total_replicas - 1
        self.rule = f"{config.in_sync_replicas}/{config.total_replicas}"
        self.claim: ClaimEpoch | None = None
        """Set where name servers exist; called in a worker that may wait for some seconds."""
        self._state = environment.state
        self._log = environment.log
        self._reserved: tuple[int, str] | None = None
        self._reported = ""

    def has(self, node_id: str) -> bool:
        """Return whether a slave is counted."""
        return node_id in self._state.slaves

    def add(self, node_id: str, offset: int) -> bool:
        """Count a slave from now on, if it is counted already or there is room; durable when it returns.

        Call it before the slave's first acknowledgement: after a crash the master must know which slaves to ask for the
        bytes it lost.
        """
        known = self._state.slaves
        if node_id not in known:
            if len(known) >= self.count_max:
                return False
            self._state.note_slaves({node_id: offset})
        return True

    def without_gone(self, connected: Collection[str], node_id: str) -> tuple[dict[str, int], list[str]]:
        """Return the slaves that an epoch with ``node_id`` shall count besides it, and those that lose their place: no
        more than necessary, only absent ones, those with the shortest logs first.
        """
        kept = {node: offset for node, offset in self._state.slaves.items() if node != node_id}
        away = sorted((node for node in kept if node not in connected), key=lambda node: kept[node])
        gone = away[: max(0, len(kept) - (self.count_max - 1))]
        for node in gone:
            del kept[node]
        return kept, gone

    def reserve(self, node_id: str, gone: list[str]) -> tuple[int, str] | None:
        """Return the epoch in which ``node_id`` shall be counted once the name servers know it; None if they do not.

        May block for some seconds.
        """
        if self._reserved is None:
            self._reserved = self._state.reserve_members()
        why = "" if self.claim is None else self.claim(*self._reserved)
        if why:
            if why != self._reported:
                self._log.warning(
                    "slave_not_counted",
                    node_id=node_id,
                    gone=gone,
                    epoch=self._reserved[0],
                    why=why,
                    hint="it is to take the place of an absent slave, which a majority of the name servers must know "
                    "first; it gets the log meanwhile",
                )
            self._reported = why
            return None
        self._reported = ""
        return self._reserved

    def opened(self) -> None:
        """Record that the reserved epoch was opened."""
        self._reserved = None
