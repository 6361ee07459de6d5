"""What a request about a named transaction must be, to be served.

Lives here: its limits; ``NamedChecks``: what is known of it is looked at, or it is refused. All under the lock.
"""

from collections.abc import Callable
from typing import Final

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.request.request_task import Refusal
from pocketmq.broker.send.rocketmq_send import NotStored
from pocketmq.broker.staged.staged_log import NamedLog
from pocketmq.broker.staged.staged_records import Manifest
from pocketmq.broker.staged.staged_state import ATTEMPTS_MAX, CHUNKS_MAX, NAMES_MAX, Attempt, NamedState, Open
from pocketmq.common.errors import Cause, MessageIllegal
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.protocol.staged import NamedEndRequestHeader, NamedStageRequestHeader

ASK: Final = 0
SEAL: Final = 1
COMMIT: Final = 2
ABORT: Final = 3
ENLIST: Final = 4
NAME_LENGTH_MAX: Final = 255
ATTEMPT_LENGTH_MAX: Final = 64
MANIFEST_MAX: Final = 10_000
"""Attempts of one transaction on one broker."""
PARTICIPANTS_MAX: Final = 256
PARTICIPANTS_BYTES_MAX: Final = 8192
"""Of the names of all of them together: sixteen commits of a name must fit into a part of a snapshot."""
INDEX_MAX: Final = 1_000_000
CHUNK_TOPICS_MAX: Final = 16
"""Topics in one chunk: their names must leave its event small."""
KEEP_HOURS_MAX: Final = 24 * 365
FULL_RETRY_MS: Final = 1000


class NamedChecks:
    """``topic_home``: the identity of a topic, and how many queues it has; None if there is none."""

    def __init__(
        self, config: BrokerConfig, named: NamedLog, topic_home: Callable[[str], tuple[str, int] | None]
    ) -> None:
        self._config = config
        self._named = named
        self._topic_home = topic_home

    def check_order(self, name: str, sequence: int, state: NamedState) -> None:
        """Raise for a transaction below the commits that are remembered."""
        lowest = self._named.table.behind(name, sequence)
        if state is not NamedState.COMMITTED and lowest is not None:
            raise refused(
                f"sequence {sequence} of {name} is below {lowest}, the lowest that is remembered: nobody knows whether "
                "it was committed",
                hint="sequences of a name must grow; use another name for another stream",
            )

    def check_room(self, header: NamedStageRequestHeader, new_attempt: bool) -> None:
        """Raise where too much is staged."""
        table = self._named.table
        why = ""
        self.check_names(header.name)
        if (new_attempt and table.attempts >= ATTEMPTS_MAX) or table.chunks >= CHUNKS_MAX:
            why = f"{table.attempts} attempts with {table.chunks} chunks wait for their commits"
        elif table.staged_bytes >= self._config.named_transaction_size_bytes_max:
            why = f"{table.staged_bytes} bytes wait for the commits of named transactions"
        if why:
            raise full(f"not staged: {why}; commit or abort some, or wait until they expire")

    def check_names(self, name: str) -> None:
        """Make room for a new name, or refuse it."""
        table = self._named.table
        if not table.has(name) and len(table) >= NAMES_MAX and not table.make_room(self._named.now_ms()):
            raise full(f"{NAMES_MAX} names of transactions are remembered; wait until some are forgotten")

    def homes(self, sections: list[tuple[str, int, int]], topics: list[str]) -> list[tuple[str, int]]:
        """Return the identity of each topic, and the highest queue id that is written."""
        homes: list[tuple[str, int]] = []
        for topic in topics:
            identity, _ = self._topic_home(topic) or ("", 0)
            homes.append((identity, max(queue_id for name, queue_id, _ in sections if name == topic)))
        return homes

    def check_brokers(self, header: NamedEndRequestHeader) -> None:
        """Raise unless who sends this knows all brokers that may know something of the name."""
        known, _ = self._named.table.brokers(header.name)
        if known != header.brokers and max(len(known), len(header.brokers)) > 1:
            raise failed(
                f"{header.name} {header.sequence}: brokers that may know something of this name are "
                f"{', '.join(known) or 'not told'}, whoever sends this knows of {', '.join(header.brokers) or 'none'}: "
                "enlist all of them, and try again"
            )

    def check_complete(self, header: NamedEndRequestHeader, opened: Open | None) -> None:
        """Raise unless all of a manifest is here; that of a seal, where there is one and its token is given."""
        manifest = header.attempts
        if opened is not None and opened.seal is not None and header.action == COMMIT:
            manifest = opened.seal.manifest
        missing = self._named.table.missing(opened, manifest, self._named.min_offset)
        if missing:
            raise failed(
                f"{header.name} {header.sequence} cannot be committed: {missing}: it expired, was aborted, or a power "
                "failure took it; stage it again"
            )

    def check_topics(self, opened: Open | None, manifest: Manifest) -> None:
        """Raise where the messages of a manifest would go nowhere, or to another topic of the same name."""
        attempts = {} if opened is None else opened.attempts
        for attempt, _ in manifest:
            for topic, (identity, highest) in attempts.get(attempt, Attempt()).topics.items():
                home = self._topic_home(topic)
                if home is None:
                    raise failed(f"not committed: topic {topic} was deleted after its messages were staged")
                if identity and home[0] and identity != home[0]:
                    raise failed(
                        f"not committed: topic {topic} was deleted, and made again, after its messages were staged"
                    )
                if highest >= home[1]:
                    raise failed(
                        f"not committed: topic {topic} has {home[1]} queues, messages were staged for queue {highest}"
                    )


def check_name(name: str, sequence: int) -> None:
    """Raise for a name or a sequence that nobody may use."""
    if not 0 < len(name) <= NAME_LENGTH_MAX or not name.isprintable():
        raise refused(f"the name {name[:80]!r} is not 1 to {NAME_LENGTH_MAX} printable characters")
    if sequence < 0:
        raise refused(f"sequence {sequence} is negative")


def check_manifest(header: NamedEndRequestHeader) -> None:
    """Raise for a request to end that is out of bounds."""
    if header.action not in (ASK, SEAL, COMMIT, ABORT, ENLIST):
        raise refused(f"action {header.action} is not 0 to 4")
    if len(header.attempts) > MANIFEST_MAX:
        raise refused(f"{len(header.attempts)} attempts, at most {MANIFEST_MAX}")
    for brokers in (header.participants, header.brokers, header.gone):
        check_participants(brokers)
    if any(len(text) > NAME_LENGTH_MAX for text in (header.token, header.lead)):
        raise refused(f"a text of more than {NAME_LENGTH_MAX} characters")
    names = [attempt for attempt, _ in header.attempts]
    if any(len(attempt) > ATTEMPT_LENGTH_MAX for attempt in names):
        raise refused(f"an attempt of more than {ATTEMPT_LENGTH_MAX} characters")
    if len(set(names)) < len(names):
        raise refused("an attempt is named twice")
    if any(not 0 < count <= INDEX_MAX for _, count in header.attempts) and header.action != ABORT:
        raise refused(f"an attempt without chunks, or with more than {INDEX_MAX}")


def check_participants(brokers: list[str]) -> None:
    """Raise for too many brokers."""
    size_bytes = sum(len(broker.encode()) for broker in brokers)
    if len(brokers) > PARTICIPANTS_MAX or size_bytes > PARTICIPANTS_BYTES_MAX:
        raise refused(
            f"{len(brokers)} brokers with names of {size_bytes} bytes; at most {PARTICIPANTS_MAX}, "
            f"{PARTICIPANTS_BYTES_MAX}"
        )


def keep_hours(header: NamedEndRequestHeader) -> int:
    """Return how long a commit is remembered."""
    return min(max(header.keep_hours, 1), KEEP_HOURS_MAX)


def full(text: str) -> NotStored:
    """Return the refusal of what may be taken later."""
    return NotStored(Refusal(int(ResponseCode.SYSTEM_BUSY), text, Cause.MEMORY_LIMIT, retry_after_ms=FULL_RETRY_MS))


def refused(why: str, hint: str = "") -> MessageIllegal:
    """Return the refusal of what breaks a rule."""
    return MessageIllegal("named transaction refused", why=why, hint=hint)


def failed(text: str) -> NotStored:
    """Return the refusal of what cannot be committed."""
    return NotStored(Refusal(int(ResponseCode.TRANSACTION_FAILED), text, Cause.BAD_REQUEST))
