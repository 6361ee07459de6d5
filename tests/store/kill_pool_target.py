"""Appends through a write-buffer pool until it is killed; prints the committed end. Run by test_pool_model."""

import sys
from pathlib import Path

from pocketmq.store.message_store import MessageStore, PutStatus
from tests.store.log_fakes import HOST, group_of, put, store_config


def main(root: str) -> None:
    config = store_config(
        Path(root),
        mapped_file_size_commit_log=1 << 18,
        mapped_file_size_consume_queue=20 * 1000,
        max_index_num=100_000,
        max_hash_slot_num=1000,
        transient_store_pool_enable=True,
        transient_store_pool_size=3,
        commit_commit_log_least_pages=8,
        checkpoint_interval=100,
        flush_interval_consume_queue=50,
        flush_interval_commit_log=20,
    )
    store = MessageStore(config)
    store.store_host = HOST
    store.open()
    number = store.log.next_queue_offset("T", 0) * 3
    told = -1
    while True:
        count = number % 7 + 1
        body = b"%d " % number + bytes(number % 900)
        result = store.append(group_of([put(body, "T", number % 3, key=f"k{number}") for _ in range(count)]))
        if result.status is not PutStatus.PUT_OK:
            raise SystemExit(result.error)
        committed, appended = store.committed_offset, store.appended_offset
        if committed != told:
            told = committed
            print("committed", committed, appended, flush=True)
        number += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
