"""Who leads each replicated broker name: the newest epoch that was claimed.

Lives here: ``EpochRecord``, ``EpochTable``: claims judged, records by broker name. It does no I/O.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from pocketmq.common.epochs import EPOCH_UNKNOWN_MAX, PROMOTION_STEP, highest_allowed, members_of
from pocketmq.common.errors import Cause, PocketMQError

NUMBER_MAX: Final = (1 << 53) - 1
TEXT_CHARS_MAX: Final = 255
ROLES: Final = ("SYNC_MASTER", "ASYNC_MASTER")
UNREGISTERED_SHARE: Final = 10
"""One in so many records may be of a name that no broker has registered yet; the oldest of them makes room."""


class EpochClaimIllegal(PocketMQError):
    """An implausible claim; nothing was changed."""

    default_cause = Cause.BAD_REQUEST


class EpochTableFull(PocketMQError):
    """The name server keeps as many epochs as it may; nothing was changed."""

    default_cause = Cause.MEMORY_LIMIT


class EpochRecord(msgspec.Struct, frozen=True):
    """``owner`` is a run of a node (``<node id>.<run>``), ``address`` the broker's, ``role`` what it leads as.

    ``registered``: a broker of this name was registered when it was claimed, or has registered with it since. Such a
    record is never given up; one of a name that no broker registers may be. Files without the field have only such.
    """

    epoch: int
    owner: str
    address: str
    role: str
    registered: bool = True

    @property
    def node(self) -> str:
        """The node that the owner is a run of."""
        return self.owner.partition(".")[0]


class EpochTable:
    """Broker name → record. Bounded by ``names_max``. One thread only.

    A claim holds when its number is above the known one: by the same node, or, from another node, with the number of a
    promotion. So neither an old master that starts again and again nor an empty disk under an old name can take over.
    A promotion must have in its log the newest set of counted slaves that the known master has claimed: a slave that
    was replaced lacks what its replacement has confirmed.

    No claim may use up the numbers, or no broker could be promoted any more: one beyond ``EPOCH_UNKNOWN_MAX``, or a
    forced one of a name that is known, is at most two promotions ahead of the record. So the next promotion is above
    any claim, even a wrong one.
    """

    def __init__(self, names_max: int) -> None:
        self._names_max = names_max
        self._unregistered_max = max(1, names_max // UNREGISTERED_SHARE)
        self.records: Mapping[str, EpochRecord] = {}

    def get(self, broker_name: str) -> EpochRecord | None:
        """Return the newest record of a name."""
        return self.records.get(broker_name)

    def judge(self, broker_name: str, claim: EpochRecord, *, force: bool = False, last_epoch: int = 0) -> bool:
        """Return whether ``claim`` holds; ``last_epoch`` is the newest in the claimant's log, if it shall be promoted.

        Raises ``EpochClaimIllegal`` and ``EpochTableFull``.
        """
        self.check(broker_name, claim)
        known = self.records.get(broker_name)
        self._check_number(claim.epoch, known, force)
        if known is None:
            if len(self.records) >= self._names_max and not self._unregistered():
                raise EpochTableFull(
                    "claim refused",
                    why=f"{len(self.records)} broker names have epochs",
                    hint="raise namesrv.epochs_max",
                )
            return True
        if claim.epoch == known.epoch and claim.owner == known.owner:
            return True
        if claim.epoch > known.epoch:
            if force or claim.node == known.node:
                return True
            is_promotion = claim.epoch // PROMOTION_STEP > known.epoch // PROMOTION_STEP
            return is_promotion and members_of(last_epoch) >= members_of(known.epoch)
        return False

    @staticmethod
    def check(broker_name: str, claim: EpochRecord) -> None:
        """Raise ``EpochClaimIllegal`` for a claim that holds in no table, before it waits for anything."""
        texts = (broker_name, claim.owner, claim.address)
        is_text = all(0 < len(text) <= TEXT_CHARS_MAX and text.isprintable() for text in texts)
        if not 0 < claim.epoch <= NUMBER_MAX or not is_text:
            raise EpochClaimIllegal("claim refused", why=f"epoch {claim.epoch} of {claim.owner[:80]!a}")
        if claim.role not in ROLES:
            raise EpochClaimIllegal("claim refused", why=f"role {claim.role[:80]!a}", hint="it must be a master's")

    @staticmethod
    def _check_number(epoch: int, known: EpochRecord | None, force: bool) -> None:
        allowed = highest_allowed(known.epoch if known is not None else 0)
        if known is None or not force:
            allowed = max(allowed, EPOCH_UNKNOWN_MAX)
        if epoch > allowed:
            raise EpochClaimIllegal(
                "claim refused",
                why=f"epoch {epoch} is beyond {allowed}; epoch {0 if known is None else known.epoch} is known here",
                hint="use pocketmq ha promote, which chooses the number",
            )

    def _unregistered(self) -> list[str]:
        return [name for name, record in self.records.items() if not record.registered]

    def with_claim(self, broker_name: str, record: EpochRecord) -> Mapping[str, EpochRecord]:
        """Return the records with a claim that holds, to be written down before they become ``records``.

        The oldest one that no broker has registered makes room for a new name: invented names keep no pair out, and
        the record of a registered pair is never given up.
        """
        records = {**self.records, broker_name: record}
        if broker_name not in self.records:
            unregistered = self._unregistered()
            if unregistered and (
                len(records) > self._names_max
                or (not record.registered and len(unregistered) >= self._unregistered_max)
            ):
                del records[unregistered[0]]
        return records

    def without(self, broker_name: str, *, registered: bool = False) -> Mapping[str, EpochRecord]:
        """Return the records without the one of a name: only if no broker has registered with it, unless
        ``registered``."""
        known = self.records.get(broker_name)
        if known is None or (known.registered and not registered):
            return self.records
        return {name: record for name, record in self.records.items() if name != broker_name}

    def load(self, content: bytes) -> None:
        """Take over the records of an ``epochs.json``; raises ``DECODE_ERRORS``."""
        records = msgspec.json.decode(content, type=dict[str, EpochRecord])
        for name, record in records.items():
            if not 0 < record.epoch <= NUMBER_MAX or record.role not in ROLES:
                raise msgspec.ValidationError(f"{name[:80]!r} has epoch {record.epoch}, role {record.role[:80]!r}")
        self.records = records
