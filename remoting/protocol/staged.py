"""Staged transactions: the chunks that a broker stages, and the end of the transaction.

PocketMQ's own; ``docs/transactions.md`` explains them.

Access, our decision after SEND_MESSAGE and END_TRANSACTION: Pub on the topic of each section, and at the end on each
topic of the chunks that are staged.
"""

from collections.abc import Mapping
from typing import ClassVar, Final

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.access import PUB_SECTIONS, PUB_STORED
from pocketmq.remoting.protocol.spec import Header, Int, Long, Pool, Raw, Spec

_WIRE_NAMES: Final = {"transactional_id": "name", "version": "sequence", "coordinator": "lead"}
"""The string forms of the headers keep these fields' first names."""


class StagedWriteRequestHeader(Header, frozen=True):
    """STAGED_TRANSACTION_WRITE: a chunk of one attempt; the body is that of NATIVE_APPEND."""

    wire_names: ClassVar[Mapping[str, str]] = _WIRE_NAMES

    producer_group: str
    transactional_id: str
    version: Long
    attempt: str
    index: Int
    """The chunk's number in the attempt, from 0; a known one is not stored again."""
    sections: list[tuple[str, Int, Int]]
    """(topic, queue id, record count) of each section."""
    timeout_ms: Int
    wait: bool = True
    """For the flush and slaves, as the settings say."""


class StagedEndRequestHeader(Header, frozen=True):
    """STAGED_TRANSACTION_END. ``action``: 0 ask, 1 prepare, 2 commit, 3 abort, 4 add brokers."""

    wire_names: ClassVar[Mapping[str, str]] = _WIRE_NAMES

    producer_group: str
    transactional_id: str
    version: Long
    action: Int
    attempts: list[tuple[str, Int]]
    """(attempt, its chunks): all chunks of the transaction, in order; of an abort: the chunks given up."""
    token: str = ""
    """The prepare that this belongs to; empty: none."""
    coordinator: str = ""
    """Of a prepare: the broker whose commit decides."""
    participants: list[str] = []
    """Of a prepare and a commit: the brokers that have a part."""
    keep_hours: Int = 720
    """The shortest time that the commit is remembered."""
    brokers: list[str] = []
    """Of a prepare, a commit and an add brokers: all brokers that may know the id, sorted; empty: this one alone."""
    gone: list[str] = []
    """Of an add brokers: brokers that no longer exist."""
    epoch: Long = 0
    """Of a prepare at another broker than the coordinator: the epoch that the coordinator answered."""


class StagedResponseHeader(Header, frozen=True):
    """STAGED_TRANSACTION_WRITE, STAGED_TRANSACTION_END: the present state of the transaction."""

    wire_names: ClassVar[Mapping[str, str]] = _WIRE_NAMES

    state: Int
    """0 unknown, 1 staged, 2 prepared, 3 committed."""
    delivered: bool = False
    """Committed, with all its messages in their queues."""
    token: str = ""
    coordinator: str = ""
    participants: list[str] = []
    epoch: Long = 0
    """Of a prepare: the place of the coordinator's prepare in its log; of two the higher one counts."""
    brokers: list[str] = []
    """All brokers that may know the transactional id, if several."""
    lost: Int = 0
    """Committed chunks that were deleted before they could be delivered."""


_R = RequestCode
SPECS: Final = (
    Spec(_R.STAGED_TRANSACTION_END, Pool.STAGED, PUB_STORED, StagedEndRequestHeader, StagedResponseHeader),
    Spec(
        _R.STAGED_TRANSACTION_WRITE,
        Pool.STAGED,
        PUB_SECTIONS,
        StagedWriteRequestHeader,
        StagedResponseHeader,
        body=Raw.SIZED_RECORDS,
    ),
)
