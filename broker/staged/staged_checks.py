"""Checks of requests about staged transactions.

Lives here: their limits; ``StagedChecks``, which checks a request against the known state. All under the lock.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pocketmq.auth.stored import check_stored
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.request.request_task import Refusal, Task
from pocketmq.broker.send.rocketmq_send import NotStored
from pocketmq.broker.staged.staged_log import StagedLog
from pocketmq.broker.staged.staged_records import Manifest
from pocketmq.broker.staged.staged_state import ATTEMPTS_MAX, CHUNKS_MAX, IDS_MAX, Attempt, Open, StagedState
from pocketmq.common.errors import Cause, MessageIllegal
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.protocol.access import PUB
from pocketmq.remoting.protocol.staged import StagedEndRequestHeader, StagedWriteRequestHeader

ASK: Final = 0
PREPARE: Final = 1
COMMIT: Final = 2
ABORT: Final = 3
ADD_BROKERS: Final = 4
ID_LENGTH_MAX: Final = 255
ATTEMPT_LENGTH_MAX: Final = 64
MANIFEST_MAX: Final = 10_000
"""Attempts of one transaction on one broker."""
PARTICIPANTS_MAX: Final = 256
PARTICIPANTS_BYTES_MAX: Final = 8192
"""Of all their names together: sixteen commits of a transactional id must fit into a part of a snapshot."""
INDEX_MAX: Final = 1_000_000
CHUNK_TOPICS_MAX: Final = 16
"""Topics in one chunk: their names must not make its event large."""
KEEP_HOURS_MAX: Final = 24 * 365
FULL_RETRY_MS: Final = 1000


@dataclass(slots=True, eq=False)
class StagedChecks:
    """Checks against the known transactions."""

    config: BrokerConfig
    staged_log: StagedLog
    topic_home: Callable[[str], tuple[str, int] | None]
    """Returns the identity of a topic, and its number of queues; None if it does not exist."""

    def check_order(self, transactional_id: str, version: int, state: StagedState) -> None:
        """Raise for a transaction below the remembered commits."""
        lowest = self.staged_log.table.behind(transactional_id, version)
        if state is not StagedState.COMMITTED and lowest is not None:
            raise refused(
                f"version {version} of {transactional_id} is below {lowest}, the lowest version remembered: whether it "
                "was committed is unknown",
                hint="versions of a transactional id must grow; use another transactional id for another stream",
            )

    def check_room(self, header: StagedWriteRequestHeader, new_attempt: bool) -> None:
        """Raise when too much is staged."""
        table = self.staged_log.table
        why = ""
        self.check_ids(header.transactional_id)
        if (new_attempt and table.attempts >= ATTEMPTS_MAX) or table.chunks >= CHUNKS_MAX:
            why = f"{table.attempts} attempts with {table.chunks} chunks wait for their commits"
        elif table.staged_bytes >= self.config.staged_transaction_size_bytes_max:
            why = f"{table.staged_bytes} bytes wait for the commits of staged transactions"
        if why:
            raise full(f"not staged: {why}; commit or abort some, or wait until they expire")

    def check_ids(self, transactional_id: str) -> None:
        """Make room for a new transactional id, or refuse it."""
        table = self.staged_log.table
        if not table.has(transactional_id) and len(table) >= IDS_MAX and not table.make_room(self.staged_log.now_ms()):
            raise full_of_ids(
                f"{IDS_MAX} transactional ids are remembered; commit or abort some, or use another broker"
            )

    def homes(self, sections: list[tuple[str, int, int]], topics: list[str]) -> list[tuple[str, int]]:
        """Return the identity of each topic, and its highest queue id in ``sections``."""
        homes: list[tuple[str, int]] = []
        for topic in topics:
            identity, _ = self.topic_home(topic) or ("", 0)
            homes.append((identity, max(queue_id for name, queue_id, _ in sections if name == topic)))
        return homes

    def check_brokers(self, header: StagedEndRequestHeader) -> None:
        """Raise unless the sender knows all brokers that may know the transactional id."""
        known, _ = self.staged_log.table.brokers(header.transactional_id)
        if known != header.brokers and max(len(known), len(header.brokers)) > 1:
            raise failed(
                f"{header.transactional_id} {header.version}: the brokers of this transactional id are "
                f"{', '.join(known) or 'unknown'}; this request names {', '.join(header.brokers) or 'none'}: add "
                "all of them, and try again"
            )

    def check_complete(self, header: StagedEndRequestHeader, opened: Open | None) -> None:
        """Raise unless this broker has the whole manifest: the prepared one, if the commit follows a prepare."""
        manifest = header.attempts
        if opened is not None and opened.prepared is not None and header.action == COMMIT:
            manifest = opened.prepared.manifest
        missing = self.staged_log.table.missing(opened, manifest, self.staged_log.min_offset)
        if missing:
            raise failed(
                f"{header.transactional_id} {header.version} cannot be committed: {missing}: it expired, was "
                "aborted, or a power failure took it; stage it again"
            )

    def check_topics(self, opened: Open | None, manifest: Manifest) -> None:
        """Raise if a topic of a manifest is gone, or is another topic of the same name."""
        attempts = {} if opened is None else opened.attempts
        for attempt, _ in manifest:
            for topic, (identity, highest) in attempts.get(attempt, Attempt()).topics.items():
                home = self.topic_home(topic)
                if home is None:
                    raise failed(f"not committed: topic {topic} was deleted after its messages were staged")
                if identity and home[0] and identity != home[0]:
                    raise failed(
                        f"not committed: topic {topic} was deleted and created again after its messages were staged"
                    )
                if highest >= home[1]:
                    raise failed(
                        f"not committed: topic {topic} has {home[1]} queues, messages were staged for queue {highest}"
                    )


def check_user_of(task: Task, opened: Open | None) -> None:
    """Raise ``AccessDenied`` if the user may not send to each topic that the transaction has messages of so far."""
    if task.request.session is not None and opened is not None:
        for attempt in opened.attempts.values():
            for topic in attempt.topics:
                check_stored(task.request, topic, PUB)


def check_id(transactional_id: str, version: int) -> None:
    """Raise for a transactional id or a version out of bounds."""
    if not 0 < len(transactional_id) <= ID_LENGTH_MAX or not transactional_id.isprintable():
        raise refused(
            f"the transactional id {transactional_id[:80]!r} is not 1 to {ID_LENGTH_MAX} printable characters"
        )
    if version < 0:
        raise refused(f"version {version} is negative")


def check_manifest(header: StagedEndRequestHeader) -> None:
    """Raise for an end request that is out of bounds."""
    if header.action not in (ASK, PREPARE, COMMIT, ABORT, ADD_BROKERS):
        raise refused(f"action {header.action} is not 0 to 4")
    if len(header.attempts) > MANIFEST_MAX:
        raise refused(f"{len(header.attempts)} attempts, at most {MANIFEST_MAX}")
    for brokers in (header.participants, header.brokers, header.gone):
        check_participants(brokers)
    if any(len(text) > ID_LENGTH_MAX for text in (header.token, header.coordinator)):
        raise refused(f"a text of more than {ID_LENGTH_MAX} characters")
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


def keep_hours(header: StagedEndRequestHeader) -> int:
    """Return for how many hours a commit is remembered."""
    return min(max(header.keep_hours, 1), KEEP_HOURS_MAX)


def full(text: str) -> NotStored:
    """Return the refusal of a request that may succeed later."""
    return NotStored(Refusal(int(ResponseCode.SYSTEM_BUSY), text, Cause.MEMORY_LIMIT, retry_after_ms=FULL_RETRY_MS))


def full_of_ids(text: str) -> NotStored:
    """Return the refusal of a new transactional id, at once: the table may stay full for hours, and a client that
    waited would hang."""
    return NotStored(Refusal(int(ResponseCode.SYSTEM_ERROR), text, Cause.MEMORY_LIMIT))


def refused(why: str, hint: str = "") -> MessageIllegal:
    """Return the refusal of a request that breaks a rule."""
    return MessageIllegal("staged transaction refused", why=why, hint=hint)


def failed(text: str) -> NotStored:
    """Return the refusal of a transaction that cannot be committed."""
    return NotStored(Refusal(int(ResponseCode.TRANSACTION_FAILED), text, Cause.BAD_REQUEST))
