"""Opening a store: lock the directory, recover the log, complete queues and index, start the workers.

Lives here: ``open_components``, the steps in order; ``OpenPlan``, further changes to the log at an opening.
Every step can be repeated: an opening that fails or is killed leaves a store that the next one opens.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass

from pocketmq.store.checkpoint import StorePaths, mark_open
from pocketmq.store.closing import give_up
from pocketmq.store.commitlog.allocate import ALLOCATING_SUFFIX
from pocketmq.store.commitlog.write_buffer_pool import nothing
from pocketmq.store.components import StoreComponents
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.disk.queue_paths import queues_directory
from pocketmq.store.errors import BackupUnfinished
from pocketmq.store.recovery.recovery import Recovery, RecoveryReport
from pocketmq.store.recovery.surviving_buffers import SurvivingBuffers

Progress = Callable[[int, int], None]
"""Called now and then with (offset, end) while the log is read."""


@dataclass(slots=True, frozen=True)
class OpenPlan:
    """``cut_to``: the log must not reach beyond this boundary between records; bytes beyond it are copied to the
    quarantine and cut. ``drop``: remove the whole log and all that was built from it. ``cut_at_damage``: the log ends
    before damage that no earlier start has kept and that was not known to be durable: another node has those bytes.
    ``epochs``: those in which this node has led; write buffers of another one are not written to the log. None without
    replication.
    """

    cut_to: int | None = None
    drop: bool = False
    cut_at_damage: bool = False
    epochs: frozenset[int] | None = None


def open_components(
    components: StoreComponents,
    progress: Progress | None,
    plan: Callable[[], OpenPlan],
    still_wanted: Callable[[], None] = nothing,
) -> RecoveryReport:
    """Carry out ``MessageStore.open``."""
    environment = components.environment
    begin_ns = environment.clock.monotonic_ns()
    if components.pool is not None:
        components.pool.check()
    paths = environment.paths
    environment.file_system.make_dirs(paths.root)
    if environment.file_system.exists(paths.backup_unfinished):
        raise BackupUnfinished(
            "store not opened",
            why=f"{paths.root} is a backup that was not finished, and messages are missing in it",
            hint="run `pocketmq log backup` again, or take another backup",
        )
    components.lock = environment.file_system.lock_file(paths.lock, f"lock\npid {os.getpid()}\n")
    try:
        report = _recover(components, progress, plan(), still_wanted)
        _start_workers(components, report.end_offset)
    except BaseException:
        give_up(components)
        raise
    report.duration_ms = (environment.clock.monotonic_ns() - begin_ns) / 1e6
    environment.log.info(
        "store_opened",
        kind=report.kind,
        reason=report.reason,
        end_offset=report.end_offset,
        cut_bytes=report.cut_bytes,
        damaged=len(report.damaged),
        duration_ms=round(report.duration_ms, 1),
    )
    return report


def _recover(
    components: StoreComponents, told: Progress | None, plan: OpenPlan, still_wanted: Callable[[], None]
) -> RecoveryReport:
    def progress(offset: int, end: int) -> None:
        still_wanted()
        if told is not None:
            told(offset, end)

    environment, log, queues = components.environment, components.log, components.queues
    files, paths = environment.file_system, environment.paths
    if plan.drop:
        drop_log(files, paths)
    components.segments.load()
    queues.deleted.load(components.segments.first_offset)
    queues.load()
    for path in (paths.commit_log, paths.checksums, paths.own):  # not before: a refused store is left as it was
        files.make_dirs(path)
    buffers = SurvivingBuffers(environment, components.segments, durable=components.must_sync_on_close).recover(
        plan.epochs, drop=plan.drop
    )
    recovery = Recovery(
        environment, components.segments, components.checksums, progress=progress, cut_at_damage=plan.cut_at_damage
    )
    if plan.cut_to is not None:
        recovery.cut_to(plan.cut_to)
    report = recovery.run(
        queues.last_physical_end,
        queues.entries(),
        queues.deleted.last_offset,
        queues.ends_below,
        queues.deleted.get,
    )
    for name in files.list(paths.commit_log):
        if name.endswith(ALLOCATING_SUFFIX):
            files.remove(f"{paths.commit_log}/{name}")
    report.buffers = buffers
    end = report.end_offset
    log.damaged[:] = report.damaged
    queues.deleted.cut(end)
    if components.pool is not None:
        components.pool.open(still_wanted)
    components.allocator.start()
    components.checkpointer.recover_offset = min(report.start_offset, report.dispatched_from)
    log.open_at(end, report.last_store_timestamp, report.last_group_offset)
    queue_ends = queues.ends_below(end) if report.damaged and report.truncate_queues else {}
    if report.truncate_queues:
        queues.truncate_to_physical(report.dispatched_from)
    components.index.load(report.indexed_from, clean=report.index_clean)
    components.dispatcher.rebuild(report.dispatched_from, lambda at: progress(at, end))
    queues.keep_ends(queue_ends)
    queues.correct_min(log.min_offset)
    mark_open(files, paths, durable=components.must_sync_on_close)
    components.checkpointer.opened(report)
    return report


def _start_workers(components: StoreComponents, end: int) -> None:
    log, dispatcher, runner = components.log, components.dispatcher, components.environment.runner
    log.on_appended = dispatcher.feed
    log.on_committed = [components.flush.committed]
    if components.commit is not None:
        log.on_committed += [components.short.committed, dispatcher.nudge]
        log.on_buffered = components.commit.appended
        components.commit.start(runner, survives=components.pool is not None and components.pool.survives)
    components.queues.start()
    components.index.start()
    dispatcher.start(end)
    components.flush.start(runner)
    if components.group_commit is not None:
        components.group_commit.start(runner)
    components.retention.start(runner)
    components.checkpointer.start()
    log.accept()


def drop_log(file_system: FileSystem, paths: StorePaths) -> None:
    """Remove the log and all that was built from it. Run again after a kill, it continues. Raises ``StoreError``.

    Files that promise something about the log go first, then the segments, the last one first: after a kill a shorter
    log is left.
    """
    for path in (paths.positions, paths.checkpoint, paths.damage, paths.deleted_topics):
        file_system.remove(path)
    for directory in (paths.own, paths.root):
        if file_system.exists(directory):
            file_system.sync_dir(directory)
    for path in (queues_directory(paths.root), f"{paths.root}/index", paths.checksums):
        file_system.remove_tree(path, below=paths.root)
    for name in reversed(file_system.list(paths.commit_log)):
        file_system.remove(f"{paths.commit_log}/{name}")
        file_system.sync_dir(paths.commit_log)
    file_system.sync_dir(paths.root)
