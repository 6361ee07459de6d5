"""The write-buffer pool against the store without one, and against crashes at any point."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.common.record_group import RecordGroup
from pocketmq.store.append_result import PutStatus
from pocketmq.store.message_store import MessageStore
from tests.store.log_fakes import Stepped, crashed_copy, group_of, put, read_queue, store_config

GROUP = st.lists(st.tuples(st.integers(0, 900), st.integers(0, 2)), min_size=1, max_size=12)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), GROUP),
        st.tuples(st.just("append"), GROUP),
        st.tuples(st.sampled_from(["commit", "flush", "checkpoint", "steps", "checksums", "reopen"]), st.none()),
    ),
    max_size=16,
)
Steps = list[tuple[str, list[tuple[int, int]] | None]]


def groups_of(sizes: list[tuple[int, int]], first: int, bytes_max: int) -> list[RecordGroup]:
    """Return the records as one group, or singly where that would be too large."""
    puts = [
        put(b"%d." % (first + at) + bytes([at + 1]) * size, "T", queue_id, key=f"k{first + at}")
        for at, (size, queue_id) in enumerate(sizes)
    ]
    group = group_of(puts)
    return [group] if len(group.buffer) <= bytes_max else [group_of([one]) for one in puts]


def files_after(root: Path, steps: Steps, **changes: object) -> dict[str, list[bytes]]:
    """Take the steps, close, and return the files of log, consume queues and index (their names are times)."""
    stepped = Stepped(root, None, **changes)
    number = 0
    for step, sizes in steps:
        store = stepped.store
        if step == "append":
            assert sizes is not None
            for group in groups_of(sizes, number, store.group_bytes_max):
                assert store.append(group).status is PutStatus.PUT_OK
                stepped.clock.advance_ms(7)
            number += len(sizes)
        elif step == "commit":
            store.log.commit()
        elif step == "flush":
            store.log.flush()
        elif step == "checkpoint":
            store.checkpoint()
        elif step == "checksums":
            stepped.write_checksums()
        elif step == "steps":
            stepped.clock.advance_ms(1000)
            stepped.runner.run_until_idle()
        else:
            store.close()
            now_ms = stepped.clock.now_ms()
            stepped = Stepped(root, None, **changes)
            stepped.clock.advance_ms(now_ms - stepped.clock.now_ms())
            assert stepped.report.kind in ("new", "clean")
        log = stepped.store.log
        assert log.flushed_offset <= log.committed_offset <= log.appended_offset
        assert stepped.store.dispatched_offset <= log.committed_offset
    stepped.store.close()
    return {
        name: [path.read_bytes() for path in sorted((root / name).rglob("*")) if path.is_file()]
        for name in ("commitlog", "consumequeue", "index")
    }


@pytest.mark.slow
@given(STEPS, st.integers(1, 5), st.sampled_from(["mapped", "written"]), st.booleans(), st.sampled_from([0, 4096]))
def test_a_pool_gives_the_same_files(
    tmp_path_factory: pytest.TempPathFactory,
    steps: Steps,
    size: int,
    append_mode: str,
    survives: bool,
    buffer_bytes: int,
) -> None:
    """Any groups, any times of commit, flush, checkpoint and restart, any size: byte for byte as without a pool."""
    plain = files_after(tmp_path_factory.mktemp("plain"), steps)
    pooled = files_after(
        tmp_path_factory.mktemp("pooled"),
        steps,
        transient_store_pool_enable=True,
        transient_store_pool_size=size,
        append_mode=append_mode,
        transient_store_pool_path=str(tmp_path_factory.mktemp("shm")) if survives else "anonymous",
        transient_store_pool_buffer_size=buffer_bytes,
    )
    assert pooled == plain


@pytest.mark.slow
@given(
    st.lists(st.one_of(GROUP, st.sampled_from(["commit", "flush", "checkpoint", "steps", "crash"])), max_size=16),
    st.integers(1, 4),
)
def test_a_crash_takes_only_what_was_not_committed(
    tmp_path_factory: pytest.TempPathFactory, steps: list[list[tuple[int, int]] | str], size: int
) -> None:
    """All committed messages are there, and before an existing message none is missing."""
    base = tmp_path_factory.mktemp("crash")
    changes: dict[str, object] = {"transient_store_pool_enable": True, "transient_store_pool_size": size}
    stepped = Stepped(base / "0", None, **changes)
    sent: list[int] = []  # the end of each message's group; a message's number is its index
    crashes = 0
    for step in [*steps, "crash"]:
        store = stepped.store
        if isinstance(step, list):
            for group in groups_of(step, len(sent), store.group_bytes_max):
                result = store.append(group)
                assert result.status is PutStatus.PUT_OK
                sent += [result.end_offset] * len(group)
        elif step == "commit":
            store.log.commit()
        elif step == "flush":
            store.log.flush()
        elif step == "checkpoint":
            store.checkpoint()
        elif step == "steps":
            stepped.clock.advance_ms(1000)
            stepped.runner.run_until_idle()
        else:
            crashes += 1
            committed = store.committed_offset
            copy = crashed_copy(stepped.root, base / str(crashes))
            stepped = Stepped(copy, None, **changes)
            assert (stepped.report.damaged, stepped.report.suspect) == ([], [])
            assert stepped.store.committed_offset >= committed
            end = stepped.store.committed_offset
            found = [int(record.body.split(b".")[0]) for queue in range(3) for record in stepped.records("T", queue)]
            assert sorted(found) == list(range(len(found)))
            kept = sent[: len(found)]
            # The first half of a group may exist without the other, which was in the buffer of the next segment.
            assert all(after > end for after in sent[len(found) :])
            assert all(after <= end for after in kept if after != kept[-1])
            sent = [min(after, end) for after in kept]
    stepped.store.close()


@pytest.mark.soak
@pytest.mark.slow
def test_kill_9_under_load_loses_only_what_was_not_committed(tmp_path: Path) -> None:
    """Killed twice under load: all committed messages are there, in order, and no others."""
    source = Path(__file__).resolve().parents[3]
    environment = dict(os.environ, PYTHONPATH=f"{source / 'src'}{os.pathsep}{source}")
    promised = appended = 0
    for lines_wanted in (40, 60):
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.store.kill_pool_target", str(tmp_path)],
            stdout=subprocess.PIPE,
            env=environment,
            cwd=source,
        )
        assert process.stdout is not None
        heard = 0
        for line in process.stdout:
            words = line.split()
            if words[:1] == [b"committed"] and line.endswith(b"\n"):
                promised, appended = int(words[1]), int(words[2])
                heard += 1
                if heard == lines_wanted:
                    process.kill()
        process.wait()
        process.stdout.close()
        assert heard >= lines_wanted
    store = MessageStore(
        store_config(
            tmp_path,
            mapped_file_size_commit_log=1 << 18,
            mapped_file_size_consume_queue=20 * 1000,
            max_index_num=100_000,
            max_hash_slot_num=1000,
        )
    )
    report = store.open()
    assert (report.kind, report.damaged) == ("unclean", [])
    assert store.committed_offset >= promised
    assert appended >= promised > 1 << 18
    for queue_id in range(3):
        last = -1
        for offset, record in enumerate(read_queue(store, "T", queue_id), store.min_offset("T", queue_id)):
            number = int(record.body.split()[0])
            assert record.body == b"%d " % number + bytes(number % 900)
            assert (number % 3, record.queue_offset) == (queue_id, offset)
            assert number >= last
            last = number
    store.close()
