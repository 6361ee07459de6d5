"""Which slaves a synchronous master counts.

Lives here: ``Members``: the counted slaves, the admission of a new one, the place that it may take, the number and the
claim of the epoch that this begins.

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
Admit = Callable[[str, int], str]
"""Called with (node id, broker id) of a slave that was never counted: returns "" when it is registered under the name
of this broker, else the reason why it is not admitted."""
ADMITTED_MAX: Final = 1024
"""Node ids that are remembered as admitted; beyond them all are asked for again."""


class Members:
    """The counted slaves of one run of a synchronous master. The caller serializes; methods write to disk."""

    def __init__(self, environment: HaEnvironment) -> None:
        config = environment.store.config
        self.count_max = config.total_replicas - 1
        self.rule = f"{config.in_sync_replicas}/{config.total_replicas}"
        self.claim: ClaimEpoch | None = None
        """Set where name servers exist; called in a worker that may wait for some seconds."""
        self.admit: Admit | None = None
        """As ``claim``. Without name servers every slave of the group is admitted."""
        self._admitted: set[str] = set()
        self._state = environment.state
        self._log = environment.log
        self._reserved: tuple[int, str] | None = None
        self._reported = ""

    def has(self, node_id: str) -> bool:
        """Return whether a slave is counted."""
        return node_id in self._state.slaves

    def is_admitted(self, node_id: str, broker_id: int) -> bool:
        """Return whether a slave may count, and whether its word does: it was counted before, or its registration names
        it. May block for some seconds. A stranger that only reaches the HA port gets the log and nothing else.
        """
        if self.admit is None or self.has(node_id) or node_id in self._admitted:
            return True
        why = self.admit(node_id, broker_id)
        if why:
            self._report(node_id, [], 0, f"not admitted: {why}")
            return False
        if len(self._admitted) >= ADMITTED_MAX:
            self._admitted.clear()
        self._admitted.add(node_id)
        return True

    def _report(self, node_id: str, gone: list[str], epoch: int, why: str) -> None:
        """Log once why a slave is not counted."""
        if why == self._reported:
            return
        self._reported = why
        self._log.warning(
            "slave_not_counted",
            node_id=node_id[:64],
            gone=gone,
            epoch=epoch,
            why=why,
            hint="it gets the log meanwhile. A new slave counts once it is registered at the name servers under this "
            "broker's name; one that takes the place of an absent slave, once a majority of them know its epoch",
        )

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
            self._report(node_id, gone, self._reserved[0], why)
            return None
        self._reported = ""
        return self._reserved

    def opened(self) -> None:
        """Record that the reserved epoch was opened."""
        self._reserved = None
