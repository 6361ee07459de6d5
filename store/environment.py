"""The surroundings of a store's components: settings, paths, disk, clock, threads and logs.

Lives here: ``StoreEnvironment``, built once by ``message_store`` and passed to the components that need most of it.
"""

from dataclasses import dataclass, field

from pocketmq.common.clock import Clock
from pocketmq.common.events import EventLog
from pocketmq.common.runner import Runner
from pocketmq.store.checkpoint import StorePaths
from pocketmq.store.config import StoreConfig
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.gate import SendGate


@dataclass(slots=True, frozen=True)
class StoreEnvironment:
    """Shared by all components, changed by none. ``error_log`` takes disk errors, ``log`` everything else."""

    config: StoreConfig
    paths: StorePaths
    file_system: FileSystem
    clock: Clock
    runner: Runner
    log: EventLog
    error_log: EventLog
    gate: SendGate = field(default_factory=SendGate)
