"""Opening the store of a node that replicates.

Lives here: the changes to the log that the state of replication orders at a start, and the condition under which a
master must ask its slaves before it leads (``needs_recovery``).
"""

from collections.abc import Callable
from functools import partial

from pocketmq.common.events import EventLog
from pocketmq.store.config import StoreConfig
from pocketmq.store.ha.state import HaState
from pocketmq.store.message_store import MessageStore, RecoveryReport
from pocketmq.store.opening import OpenPlan


def needs_recovery(state: HaState, config: StoreConfig, report: RecoveryReport | None = None) -> bool:
    """Return whether a master may have lost bytes that its slaves have: it had slaves, did not stop cleanly, and the
    machine has rebooted since then (or it keeps appends in write buffers, which may die with the process).

    ``report``: of the opening, if that is over: a log that has all that the buffers held, and lost nothing, is as after
    the end of a process without them.
    """
    if not state.slaves or state.clean or config.broker_role == "SLAVE":
        return False
    if report is not None and report.buffers.had:
        return not state.same_boot or not report.buffers.kept or report.cut_bytes > 0
    return not state.same_boot or config.transient_store_pool_enable


def open_plan(state: HaState, config: StoreConfig) -> OpenPlan:
    """Return the changes to the log at this start. ``state`` is loaded, ``config`` has the role in force."""
    another_has_it = config.broker_role == "SLAVE" or needs_recovery(state, config)
    last = state.epochs.last
    led = frozenset(entry.number for entry in state.epochs.entries if state.is_own(entry.owner))
    if last is not None and last.number not in led:  # another node has written the end of this log since
        led = frozenset()
    return OpenPlan(cut_to=state.cut_to, drop=state.drop, cut_at_damage=another_has_it, epochs=led)


def open_store(
    store: MessageStore,
    state: HaState,
    log: EventLog,
    progress: Callable[[int, int], None] | None = None,
) -> RecoveryReport:
    """Open the store as the state of replication orders, and record that it was done.

    A master then calls ``recover.recover_from_slaves`` if ``needs_recovery`` returns True, and only then opens its
    epoch. Raises the errors of ``MessageStore.open``; after an error the order stands.
    """
    report = store.open(progress, plan=partial(open_plan, state, store.config))
    end = store.log.appended_offset
    if state.drop or state.cut_to is not None:
        log.warning("slave_log_was_cut", end_offset=end, dropped=state.drop, accepted_loss=state.accept_loss)
        state.cut_done(end)
    elif store.config.broker_role == "SLAVE":
        state.set_epochs(state.epochs.cut(end))  # after a power loss the log may end before its newest epoch begins
    return report
