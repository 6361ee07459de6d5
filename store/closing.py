"""Closing a store: refuse appends, stop the workers, write everything, record a clean stop, unlock the directory.

Lives here: ``close_components``, the steps in order; ``give_up``, the end of an opening that failed.
"""

from functools import partial

from pocketmq.common.runner import AllSteps
from pocketmq.store.components import StoreComponents


def close_components(components: StoreComponents) -> None:
    """Carry out ``MessageStore.close``: take every step, raise the first error at the end."""
    steps = _steps(components)
    steps.take("refuse", components.log.refuse)
    steps.take("hand_on", components.short.hand_on)
    steps.take("retention", components.retention.stop)
    steps.take("checkpoint", components.checkpointer.stop)
    _commit_all(components, steps)
    steps.take("flush_service", components.flush.stop)
    if components.group_commit is not None:
        steps.take("group_commit", components.group_commit.stop)
    steps.take("allocator", components.allocator.stop)
    if components.must_sync_on_close or components.log.fenced_by is not None:
        steps.take("flush", components.log.flush)  # before files that can be rebuilt from the log
    steps.take("dispatch", components.dispatcher.stop)
    steps.take("index", components.index.close)
    steps.take("consume_queues", components.queues.close)
    steps.take("checksums", components.flush.write_checksums)
    if not steps.have_failed:
        steps.take("positions", components.checkpointer.stop_cleanly)
    _close_log(components, steps)
    steps.raise_first()


def give_up(components: StoreComponents) -> None:
    """Undo a failed opening. Errors here are only logged: the original one is raised."""
    steps = _steps(components)
    for stop in (  # of the workers that the opening had started
        components.retention.stop,
        components.checkpointer.stop,
        None if components.commit is None else components.commit.stop,
        components.flush.stop,
        None if components.group_commit is None else components.group_commit.stop,
        components.allocator.stop,
        components.dispatcher.stop,
        components.index.stop,
        components.queues.stop,
    ):
        if stop is not None:
            steps.take("worker", stop)
    _close_log(components, steps)


def _commit_all(components: StoreComponents, steps: AllSteps) -> None:
    commit, log = components.commit, components.log
    if commit is None:
        return
    steps.take("commit", commit.stop)
    steps.take("write_buffers", commit.commit_all)
    left_bytes = log.appended_offset - log.committed_offset
    if left_bytes and components.pool is not None and components.pool.survives:
        components.environment.error_log.error(
            "write_buffers_left",
            left_bytes=left_bytes,
            committed_offset=log.committed_offset,
            hint="the buffers stay in shared memory; the next start writes them to the log",
        )
    elif left_bytes:  # the price of RocketMQ's pool, even at a stop: report how much was lost
        components.environment.error_log.error(
            "write_buffers_lost",
            lost_bytes=left_bytes,
            committed_offset=log.committed_offset,
            hint="these messages were acknowledged but are in no file; their producers must send them again",
        )


def _close_log(components: StoreComponents, steps: AllSteps) -> None:
    is_empty = components.log.committed_offset == components.log.appended_offset
    steps.take("log", components.log.close)
    if components.pool is not None:
        steps.take("pool", partial(components.pool.close, is_empty=is_empty))
    lock, components.lock = components.lock, None
    if lock is not None:
        steps.take("lock", lock.release)


def _steps(components: StoreComponents) -> AllSteps:
    error_log = components.environment.error_log
    return AllSteps(
        lambda step, error: error_log.error("store_close_failed", step=step, error=str(error) or repr(error))
    )
