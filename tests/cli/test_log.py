"""``pocketmq log``: commands, their output, and the exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pocketmq.cli.log.app import build_app
from pocketmq.cli.log.opening import locked_by_broker
from pocketmq.common.body_codec import CompressionType, compress_body
from pocketmq.common.errors import ConfigError, PocketMQError
from pocketmq.common.record import COMPRESSED_FLAG
from pocketmq.common.record_codec import encode_record
from pocketmq.common.record_group import GroupSection, RecordGroup, record_meta
from pocketmq.store.config import StoreConfig
from pocketmq.store.message_store import MessageStore
from pocketmq.store.offline.errors import NotAStore
from tests.cli.conftest import RunCommand, StartDaemon
from tests.store.offline.rocketmq_files import RocketStore, some_messages, tree


@pytest.fixture
def store(tmp_path: Path) -> RocketStore:
    """A sound store of 100 messages."""
    built = some_messages(tmp_path / "s", 100)
    built.write()
    return built


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(build_app(), [str(each) for each in arguments])
    if isinstance(result.exception, PocketMQError):
        raise result.exception
    return result


def break_body(store: RocketStore, number: int) -> int:
    """Change a byte of a message's body on disk; return its physical offset."""
    victim = next(sent for sent in store.sent[number:] if sent.body)
    base = victim.physical_offset - victim.physical_offset % 16_384
    path = store.root / "commitlog" / f"{base:020d}"
    data = bytearray(path.read_bytes())
    data[victim.physical_offset - base + 115] ^= 1
    path.write_bytes(data)
    return victim.physical_offset


def test_verify_says_ok_or_what_is_damaged(store: RocketStore) -> None:
    """A sound store exits with 0; one bad byte exits with 1 and the report names offsets, topic and queue."""
    result = run("verify", store.root, "--full")
    assert result.exit_code == 0, result.output
    assert result.stdout.rstrip().endswith("ok")
    assert "RocketMQ's CRC covers bodies only" in result.stdout
    offset = break_body(store, 40)
    result = run("verify", store.root)
    assert result.exit_code == 1
    assert f"DAMAGE  {offset:,} to" in result.stdout
    assert "1 messages, offsets" in result.stdout
    assert result.stdout.rstrip().endswith("NOT ok")


def test_verify_prints_json_for_machines(store: RocketStore) -> None:
    """The report is one JSON document with counts by topic; --log-only checks the log alone."""
    report = json.loads(run("verify", store.root, "--json").stdout)
    assert report["ok"] is True
    assert {each["topic"]: each["records"] for each in report["topics"]}["Orders"] == sum(
        sent.topic == "Orders" for sent in store.sent
    )
    report = json.loads(run("verify", store.root, "--json", "--log-only").stdout)
    assert (report["queues"], report["records"]) == (None, 100)


def test_dump_shows_records_by_place_topic_and_time(store: RocketStore) -> None:
    """Physical offset, queue offset, topic and time select; JSON lines and hex contain the message."""
    lines = [json.loads(line) for line in run("dump", store.root, "--format", "json", "-n", 0).stdout.splitlines()]
    assert [line["physical_offset"] for line in lines] == [sent.physical_offset for sent in store.sent]
    mine = [sent for sent in store.sent if (sent.topic, sent.queue_id) == ("Orders", 1)]
    chosen = ("--topic", "Orders", "--queue", 1, "--offset", 5, "-n", 2, "--format", "json")
    lines = [json.loads(line) for line in run("dump", store.root, *chosen).stdout.splitlines()]
    assert [line["physical_offset"] for line in lines] == [sent.physical_offset for sent in mine[5:7]]
    line = json.loads(run("dump", store.root, "--offset", store.sent[9].physical_offset, "-n", 1, "--json").stdout)
    assert line["physical_offset"] == store.sent[9].physical_offset
    since = ("--from", store.sent[95].stored_ms, "--until", store.sent[97].stored_ms)
    assert len(run("dump", store.root, *since, "--json").stdout.splitlines()) == 2
    shown = run("dump", store.root, "-n", 1, "--format", "hex").stdout
    assert "da a3 20 a7" in shown
    assert "queue 0 offset 0" in run("dump", store.root, "-n", 1).stdout


def test_dump_keeps_control_characters_from_the_terminal(tmp_path: Path) -> None:
    """A message with an escape sequence in body, tags and topic is printed without it."""
    store = RocketStore(tmp_path / "s")
    store.put("T", 0, b"\x1b[2J gone", tags="\x1b[31m")
    store.write(index=False)
    assert "\x1b" not in run("dump", tmp_path / "s").stdout


@pytest.mark.parametrize("what", ["segments", "queues", "index", "checkpoint", "config"])
def test_dump_shows_the_other_files(store: RocketStore, what: str) -> None:
    """Every kind of file has a table and JSON."""
    assert run("dump", store.root, "--what", what, "--index-numbers", "20:80").exit_code == 0
    found = json.loads(run("dump", store.root, "--what", what, "--json").stdout)
    assert len(found) >= 1


def test_dump_says_what_is_wrong_with_its_options(store: RocketStore) -> None:
    """Unknown kinds, formats and times are refused; an empty result is an error with a hint."""
    for arguments in (("--what", "x"), ("--format", "x"), ("--from", "soon"), ("--index-numbers", "5")):
        with pytest.raises(ConfigError):
            run("dump", store.root, *arguments)
    with pytest.raises(PocketMQError, match="no such record"):
        run("dump", store.root, "--topic", "nobody")
    with pytest.raises(NotAStore):
        run("dump", store.root / "nowhere")


def test_export_writes_each_message_and_skips_damage_with_a_count(store: RocketStore, tmp_path: Path) -> None:
    """JSON lines, Parquet and a store hold the same messages; damage is reported and the exit code is 1."""
    import pyarrow.parquet

    offset = break_body(store, 40)
    kept = [sent for sent in store.sent if sent.physical_offset != offset and sent.topic != "Payments"]
    topics = ("--topic", "Orders", "--topic", next(sent.topic for sent in store.sent if len(sent.topic) > 100))
    result = run("export", store.root, tmp_path / "o.jsonl", *topics)
    assert result.exit_code == 1
    assert f"damage: {offset} to" in result.stderr
    assert "1 damaged ranges skipped" in result.stderr
    lines = [json.loads(line) for line in (tmp_path / "o.jsonl").read_bytes().splitlines()]
    assert [line["body"].encode() for line in lines] == [sent.body for sent in kept]
    run("export", store.root, tmp_path / "o.parquet", "--format", "parquet", *topics)
    rows = pyarrow.parquet.read_table(tmp_path / "o.parquet").to_pylist()
    assert [row["body"] for row in rows] == [sent.body for sent in kept]
    run("export", store.root, tmp_path / "copy", "--format", "log", *topics)
    result = run("verify", tmp_path / "copy", "--json", "--full")
    assert json.loads(result.stdout)["records"] == len(kept)
    assert result.exit_code == 0
    with pytest.raises(PocketMQError, match="exists"):
        run("export", store.root, tmp_path / "o.jsonl")


@pytest.mark.slow
def test_an_export_ends_quietly_when_its_reader_has_gone(store: RocketStore) -> None:
    """``| head``: exit code 0 and nothing on standard error, no traceback."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        command = [sys.executable, "-m", "pocketmq.cli.main", "log", "export", str(store.root), "-"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        done = subprocess.run(
            command, stdout=write_end, stderr=subprocess.PIPE, env=environment, timeout=100, check=False
        )
    finally:
        os.close(write_end)
    assert (done.returncode, done.stderr) == (0, b"")


def test_repair_shows_a_plan_and_changes_only_with_write(store: RocketStore, tmp_path: Path) -> None:
    """Without --write files stay; with it the queue is right again, and --backup has the copies."""
    queue = store.root / "consumequeue" / "Orders" / "1" / f"{0:020d}"
    sound = queue.read_bytes()
    queue.write_bytes(bytes(20) + sound[20:])
    before = tree(store.root)
    result = run("repair", store.root)
    assert result.exit_code == 1
    assert "rebuild_queues" in result.stdout
    assert "Orders queue 1" in result.stdout
    assert tree(store.root) == before
    result = run("repair", store.root, "--write", "--backup", tmp_path / "backup")
    assert result.exit_code == 0, result.output
    assert queue.read_bytes() == sound
    assert (tmp_path / "backup" / "consumequeue" / "Orders" / "1" / queue.name).read_bytes() != sound
    result = run("repair", store.root)
    assert (result.exit_code, result.stdout.strip()) == (0, "nothing to repair")


@pytest.mark.slow
def test_a_live_brokers_store_can_be_read_and_not_repaired(
    start_daemon: StartDaemon, run_command: RunCommand, tmp_path: Path
) -> None:
    """Beside a running broker verify and dump work and report it; repair --write is refused; the store stays sound."""
    data = tmp_path / "data"
    small = ("--set", "store.mapped_file_size_commit_log=1048576", "--namesrv-port", "0", "--broker-port", "0")
    daemon = start_daemon("standalone", "--data-dir", str(data), *small)
    sent = run_command("produce", "T", "--namesrv", daemon.namesrv, stdin=b"one\ntwo\nthree\n")
    assert sent.returncode == 0, sent.stderr
    found = run_command("log", "verify", str(data))
    assert found.returncode == 0, found.stdout
    assert b"a broker has it open now" in found.stdout
    assert run_command("log", "dump", str(data), "--topic", "T").stdout.count(b" T queue ") == 3
    refused = run_command("log", "repair", str(data), "--write")
    assert refused.returncode == 2
    assert b"locked by" in refused.stderr
    assert locked_by_broker(str(data / "lock")) in (True, None)
    daemon.end()
    assert locked_by_broker(str(data / "lock")) in (False, None)
    report = json.loads(run_command("log", "verify", str(data), "--json", "--full").stdout)
    assert report["ok"] is True, report
    assert report["records"] == 3


def test_dump_shows_what_was_compressed(tmp_path: Path) -> None:
    """Compressed bodies are shown unpacked; of a damaged one the bytes and the reason."""
    settings: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 20, "mapped_file_size_consume_queue": 20_000}
    store = MessageStore(StoreConfig(store_path_root_dir=str(tmp_path / "s"), **settings))
    store.store_host = host = bytes([127, 0, 0, 1, 0, 0, 42, 159])
    store.open()
    bodies = [compress_body(b"readable " * 1000, CompressionType.ZLIB), b"no zlib at all"]
    records = [
        encode_record("T", body, queue_id=0, sys_flag=COMPRESSED_FLAG, born_host=host, store_host=host)
        for body in bodies
    ]
    sections = [GroupSection("T", 0, 0, len(bodies))]
    assert store.append(RecordGroup.from_records(records, [record_meta("T", 0, 0, {})] * 2, sections)).status.is_stored
    store.close()
    shown = run("dump", tmp_path / "s").stdout
    assert "readable readable" in shown
    assert "no zlib at all  (compressed, " in shown


def test_backup_copies_a_store_and_adds_to_the_copy(store: RocketStore, tmp_path: Path) -> None:
    """RocketMQ's stopped store is copied, verified and opened; a second run copies nothing; links are named."""
    target = tmp_path / "copy"
    result = run("backup", store.root, target, "--verify")
    assert result.exit_code == 0, result.output
    assert "offsets 0 to " in result.stdout
    assert result.stdout.rstrip().endswith("ok")
    assert (target / "backup.json").exists()
    assert not (target / "backup.unfinished").exists()
    (target / "backup.unfinished").touch()
    result = run("verify", target)
    assert result.exit_code == 1
    assert "a backup that was not finished" in result.stdout
    (target / "backup.unfinished").unlink()
    found = json.loads(run("backup", store.root / "commitlog", target, "--json").stdout)
    assert found["backup"]["is_incremental"]
    assert found["backup"]["copied_bytes"] == 0
    assert found["verify"] is None
    linked = run("backup", store.root, tmp_path / "linked", "--share", "link")
    assert "shared (link)" in linked.stdout
    first = sorted((store.root / "commitlog").iterdir())[0]
    assert (tmp_path / "linked" / "commitlog" / first.name).samefile(first)
    assert not (target / "commitlog" / first.name).samefile(first)


def test_a_backup_refuses_what_it_cannot_do(store: RocketStore, tmp_path: Path) -> None:
    """A wrong --share, a directory with other files, and a directory without a store each have their message."""
    with pytest.raises(ConfigError, match="one of none, reflink, link"):
        run("backup", store.root, tmp_path / "copy", "--share", "magic")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").touch()
    with pytest.raises(PocketMQError, match="holds no backup"):
        run("backup", store.root, tmp_path / "full")
    with pytest.raises(NotAStore):
        run("backup", tmp_path / "nowhere", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
