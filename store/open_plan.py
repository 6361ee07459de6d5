"""What an opening of the store shall do to the log besides recovering it.

Lives here: ``OpenPlan``, the giving up of a whole log.
"""

from dataclasses import dataclass

from pocketmq.store.checkpoint import StorePaths
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.disk.queue_paths import queues_directory


@dataclass(slots=True, frozen=True)
class OpenPlan:
    """``cut_to``: the log must not reach beyond this boundary between records; what is behind it is copied to the
    quarantine and cut. ``drop``: the whole log goes, with all that was built from it. ``cut_at_damage``: the log ends
    before damage that no earlier start has kept and nobody knew to be durable: another node has those bytes.
    """

    cut_to: int | None = None
    drop: bool = False
    cut_at_damage: bool = False


def drop_log(file_system: FileSystem, paths: StorePaths) -> None:
    """Remove the log and all that was built from it. Run again after a kill it goes on. Raises ``StoreError``.

    What promises something about the log goes first, then the segments, the last one first: what a kill leaves is a
    shorter log.
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
