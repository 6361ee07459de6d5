"""A slave in its own process, to be killed: it follows the given HA port until the end.

Usage: python -m tests.store.ha.kill_slave_target DIRECTORY PORT
"""

import os
import sys
import threading
from pathlib import Path

from pocketmq.common.clock import SystemClock
from pocketmq.common.events import NullLog
from pocketmq.common.runner import ThreadRunner
from pocketmq.store.checkpoint import StorePaths
from pocketmq.store.disk.os_file_system import OsFileSystem
from pocketmq.store.ha.environment import HaEnvironment
from pocketmq.store.ha.opening import open_store
from pocketmq.store.ha.slave import HaSlave
from pocketmq.store.ha.state import HaState
from pocketmq.store.message_store import MessageStore
from tests.store.log_fakes import store_config


def main(directory: str, port: str) -> None:
    clock, runner, log = SystemClock(), ThreadRunner(), NullLog()
    state = HaState(OsFileSystem(), StorePaths(directory), clock, os.urandom)
    state.load()
    config = store_config(Path(directory), broker_role="SLAVE", mapped_file_size_commit_log=1 << 20)
    store = MessageStore(config, clock=clock, runner=runner, log=log)
    open_store(store, state, log)
    slave = HaSlave(
        HaEnvironment(store, state, "C", "b", clock, runner, log),
        lambda: f"127.0.0.1:{port}",
        broker_id=1,
        on_reopen=lambda: os._exit(3),  # a log that must be cut: the test gives no reason for it
    )
    slave.start()
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
