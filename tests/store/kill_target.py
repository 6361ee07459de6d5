"""Appends at full speed until it is killed; prints the acknowledged numbers. Run by test_message_store."""

import sys
from pathlib import Path

from pocketmq.store.message_store import MessageStore, PutStatus
from tests.store.log_fakes import HOST, group_of, put, store_config


def main(root: str, flush_disk_type: str, append_mode: str) -> None:
    config = store_config(
        Path(root),
        mapped_file_size_commit_log=1 << 18,
        mapped_file_size_consume_queue=20 * 1000,
        max_index_num=100_000,
        max_hash_slot_num=1000,
        flush_disk_type=flush_disk_type,
        append_mode=append_mode,
        checkpoint_interval=100,
        flush_interval_consume_queue=50,
        flush_interval_commit_log=20,
    )
    store = MessageStore(config)
    store.store_host = HOST
    report = store.open()
    print("open", report.kind, flush=True)
    number = max((store.max_offset("T", queue_id) for queue_id in range(3)), default=0)
    out = sys.stdout.buffer
    while True:
        queue_id = number % 3
        count = number % 7 + 1
        body = b"%d " % number + bytes(number % 900)
        result = store.append(group_of([put(body, "T", queue_id, key=f"k{number}") for _ in range(count)]))
        if result.status is not PutStatus.PUT_OK:
            raise SystemExit(result.error)
        line = b"ack %d %d %d %d\n" % (queue_id, result.first_queue_offsets[0], count, number)

        def done(status: PutStatus, line: bytes = line) -> None:
            if status is PutStatus.PUT_OK:
                out.write(line)
                out.flush()

        store.acknowledge(result.end_offset, True, done)
        number += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
