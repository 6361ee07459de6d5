"""Appends through surviving write buffers until it is killed; says on stdout what was acknowledged. Run by
test_surviving_kills.
"""

import sys
from pathlib import Path

from pocketmq.store.message_store import MessageStore, PutStatus
from tests.store.log_fakes import HOST, group_of, put, store_config


def settings(root: str, commit_ms: int = 20) -> dict[str, object]:
    """Return small segments, smaller buffers, and a commit that mostly lags behind."""
    return {
        "mapped_file_size_commit_log": 1 << 18,
        "mapped_file_size_consume_queue": 20 * 1000,
        "max_index_num": 100_000,
        "max_hash_slot_num": 1000,
        "transient_store_pool_enable": True,
        "transient_store_pool_size": 6,
        "transient_store_pool_path": f"{root}/shm",
        "transient_store_pool_buffer_size": 1 << 16,
        "commit_interval_commit_log": commit_ms,
        "commit_commit_log_thorough_interval": commit_ms,
        "wake_commit_when_put_message": False,
        "checkpoint_interval": 100,
    }


def main(root: str, commit_ms: str) -> None:
    store = MessageStore(store_config(Path(root) / "store", **settings(root, int(commit_ms))))
    store.store_host = HOST
    store.open()
    store.append(group_of([put(b"first", "Begin", 0)]))
    while store.committed_offset < store.appended_offset:  # the first commit comes at once, the others in time
        store.log.commit()
    number = sum(store.log.next_queue_offset("T", queue_id) for queue_id in range(3))
    while True:
        count = number % 5 + 1
        puts = [put(b"%d " % at + bytes(at * 7 % 900), "T", at % 3) for at in range(number, number + count)]
        result = store.append(group_of(puts))
        if result.status is not PutStatus.PUT_OK:
            raise SystemExit(result.error)
        number += count
        print("acknowledged", number, store.committed_offset, store.appended_offset, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
