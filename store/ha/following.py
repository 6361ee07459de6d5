"""A slave's decision about its master's WELCOME.

Lives here: ``judge_welcome``: follow, begin elsewhere, cut, drop the log, or refuse; ``check_number``. No I/O.

The slave computes everything itself: it must not lose a byte to a master that is wrong about the common history.
"""

import enum
from dataclasses import dataclass

from pocketmq.common.epochs import EPOCH_UNKNOWN_MAX, highest_allowed
from pocketmq.common.errors import Cause
from pocketmq.store.errors import StoreError
from pocketmq.store.ha.epochs import EpochTable, common_end
from pocketmq.store.ha.wire import Welcome


class WelcomeRefused(StoreError):
    """A slave does not follow the master it reached; its log stays as it is."""

    default_cause = Cause.NOT_MASTER


class Step(enum.Enum):
    """The slave's first action."""

    FOLLOW = "follow"
    START_AT = "start_at"
    CUT = "cut"
    DROP = "drop"
    SERVE = "serve"
    """The master recovers: it asks for bytes and sends none."""


@dataclass(slots=True, frozen=True)
class Decision:
    """``offset``: where the log ends after the step. ``why`` is for the log."""

    step: Step
    offset: int
    epochs: EpochTable
    why: str = ""


@dataclass(slots=True, frozen=True, kw_only=True)
class SlaveView:
    """The slave's log. Bytes below ``confirmed_offset`` may have been confirmed to a producer."""

    epochs: EpochTable
    min_offset: int
    end_offset: int
    segment_bytes: int
    confirmed_offset: int
    accept_loss: bool


def judge_welcome(welcome: Welcome, view: SlaveView) -> Decision:
    """Return the slave's decision. Raises ``WelcomeRefused``, and ``BadEpochs`` for an invalid table."""
    if welcome.segment_bytes != view.segment_bytes:
        raise WelcomeRefused(
            "slave does not follow",
            why=f"the master's segments have {welcome.segment_bytes} bytes, the slave's {view.segment_bytes}",
            hint="set store.mapped_file_size_commit_log to the same value on both",
        )
    theirs = EpochTable.from_rows(welcome.epochs)
    end = view.end_offset
    if welcome.recovering:
        return Decision(Step.SERVE, end, theirs)
    if end == view.min_offset:
        return _judge_empty(welcome, view, theirs)
    common = common_end(view.epochs, end, theirs, welcome.end_offset)
    if common is None:
        if not view.accept_loss:
            raise WelcomeRefused(
                "slave does not follow",
                why=f"its log [{view.min_offset}, {end}) shares no epoch with the master's",
                hint="if the master is right, start the slave with an empty store directory, or once with "
                "store.accept_loss=true, which drops its log",
            )
        return Decision(Step.DROP, welcome.min_offset, theirs, "the logs share no epoch, and the loss is accepted")
    if common < end and common < view.confirmed_offset and not view.accept_loss:
        raise WelcomeRefused(
            "slave does not follow",
            why=f"the master's log is the same only up to {common}, and this slave's messages up to "
            f"{min(end, view.confirmed_offset)} may have been confirmed to producers",
            hint="see in pocketmq ha status which node has the newest log, and promote that one; if these bytes may be "
            "lost: pocketmq ha demote --accept-loss, or store.accept_loss=true",
        )
    if common < welcome.min_offset:
        return Decision(Step.DROP, welcome.min_offset, theirs, "the master has removed the bytes that follow")
    if welcome.start_offset != common:
        raise WelcomeRefused(
            "slave does not follow",
            why=f"the master would continue at {welcome.start_offset}, but the logs are the same up to {common}",
            hint="one of the two has a bug, or is too new for the other",
        )
    if common < end:
        return Decision(Step.CUT, common, theirs, "the logs differ from there on")
    return Decision(Step.FOLLOW, end, theirs)


def _judge_empty(welcome: Welcome, view: SlaveView, theirs: EpochTable) -> Decision:
    start = welcome.start_offset
    if start == view.end_offset:
        return Decision(Step.FOLLOW, start, theirs)
    if start != welcome.min_offset or start % view.segment_bytes:
        raise WelcomeRefused(
            "slave does not follow",
            why=f"the master would start an empty slave at {start}, but its oldest byte is at {welcome.min_offset}",
            hint="one of the two has a bug, or is too new for the other",
        )
    return Decision(Step.START_AT, start, theirs, "the master's oldest segment")


def check_number(epoch: int, highest_known: int, known_elsewhere: int) -> None:
    """Raise ``WelcomeRefused`` for a master's epoch that no promotion can have reached: following it is a promise, and
    a false one near the end of the range would leave no number for another promotion.

    A slave may have been away for many promotions, so ``highest_known`` bounds the epoch only where a name server has
    said which is the newest (``known_elsewhere``, 0: none has).
    """
    allowed = highest_allowed(highest_known) if known_elsewhere else EPOCH_UNKNOWN_MAX
    if epoch > allowed:
        raise WelcomeRefused(
            "slave does not follow",
            why=f"the master has epoch {epoch}, beyond {allowed}; epoch {highest_known} is known here",
            hint='another node may pretend to be the master: see "A false epoch" in docs/replication.md',
        )
