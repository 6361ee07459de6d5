"""Named transactions: chunks that a broker stages under a name, and their end.

PocketMQ's own; ``docs/transactions.md`` says what they mean.

Access, our decision after SEND_MESSAGE and END_TRANSACTION: Pub on the topic of each section, and at the end on each
topic of the chunks that are staged.
"""

from typing import Final

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.access import PUB_SECTIONS, PUB_STORED
from pocketmq.remoting.protocol.spec import Header, Int, Long, Pool, Raw, Spec


class NamedStageRequestHeader(Header, frozen=True):
    """NAMED_TRANSACTION_STAGE: a chunk of one attempt; the body is that of NATIVE_APPEND."""

    producer_group: str
    name: str
    sequence: Long
    attempt: str
    index: Int
    """Which chunk of the attempt, from 0; one that is there already is not stored again."""
    sections: list[tuple[str, Int, Int]]
    """(topic, queue id, record count) of each section."""
    timeout_ms: Int
    wait: bool = True
    """For the flush and slaves, as the settings say."""


class NamedEndRequestHeader(Header, frozen=True):
    """NAMED_TRANSACTION_END. ``action``: 0 ask, 1 seal, 2 commit, 3 abort, 4 enlist."""

    producer_group: str
    name: str
    sequence: Long
    action: Int
    attempts: list[tuple[str, Int]]
    """(attempt, its chunks): all that belongs to the transaction, in order; of an abort: what is given up."""
    token: str = ""
    """Which seal is meant; empty: none."""
    lead: str = ""
    """Of a seal: the broker whose commit decides."""
    participants: list[str] = []
    """Of a seal and a commit: the brokers that have a part."""
    keep_hours: Int = 720
    """How long the commit is remembered at least."""
    brokers: list[str] = []
    """Of a seal, a commit and an enlist: all that may know something of the name, sorted; empty: this one alone."""
    gone: list[str] = []
    """Of an enlist: brokers that are no more."""
    epoch: Long = 0
    """Of a seal at another broker than the lead: the epoch that the lead's answered."""


class NamedResponseHeader(Header, frozen=True):
    """NAMED_TRANSACTION_STAGE, NAMED_TRANSACTION_END: what the transaction is now."""

    state: Int
    """0 unknown, 1 staged, 2 sealed, 3 committed."""
    delivered: bool = False
    """Committed, and its messages are all in their queues."""
    token: str = ""
    lead: str = ""
    participants: list[str] = []
    epoch: Long = 0
    """Of a seal: where the lead's is in its log; of two seals the higher one counts."""
    brokers: list[str] = []
    """All that may know something of the name, if they are several."""
    lost: Int = 0
    """Committed chunks that were gone before they could be delivered."""


_R = RequestCode
SPECS: Final = (
    Spec(_R.NAMED_TRANSACTION_END, Pool.STAGED, PUB_STORED, NamedEndRequestHeader, NamedResponseHeader),
    Spec(
        _R.NAMED_TRANSACTION_STAGE,
        Pool.STAGED,
        PUB_SECTIONS,
        NamedStageRequestHeader,
        NamedResponseHeader,
        body=Raw.SIZED_RECORDS,
    ),
)
