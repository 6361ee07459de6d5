"""The daemons as processes: ready line, signals, crashes, and all reasons why they do not start."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from pocketmq.cli.daemon import daemon as serving
from tests.cli.conftest import COMMAND, environment, until_registered
from tests.signals import interruptible

pytestmark = pytest.mark.slow

PORTS = ("--namesrv-port", "0", "--broker-port", "0")


def has_ipv6() -> bool:
    """Return whether this machine has the address ::1."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_ready_line_then_a_clean_end(start_daemon: Any, tmp_path: Path, number: int) -> None:
    """One line on standard output, exit code 0 after the signal, and the abort marker is gone: the store was closed."""
    daemon = start_daemon("standalone", *PORTS)
    assert daemon.ready == f"ready namesrv={daemon.namesrv} broker={daemon.broker}\n"
    assert (tmp_path / "pocketmq-data" / "abort").exists()
    code, rest, errors = daemon.end(number)
    assert (code, rest) == (0, ""), errors
    assert "Traceback" not in errors
    assert not (tmp_path / "pocketmq-data" / "abort").exists()


async def test_a_signal_while_the_store_is_opened_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The opening asks whether it is still wanted; a stop that it meets is no failure."""
    logs = Mock()
    opened = asyncio.Event()

    @contextlib.asynccontextmanager
    async def started(*arguments: Any) -> AsyncIterator[str]:
        still_wanted: Callable[[], None] = arguments[-1]
        still_wanted()
        os.kill(os.getpid(), signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(30):
                while True:
                    await asyncio.sleep(0)
                    still_wanted()
        opened.set()
        yield "ready\n"

    monkeypatch.setattr(serving, "_started", started)
    await serving._serve(serving.Shape(namesrv=True, broker=True), Mock(), logs, Mock())
    assert not opened.is_set()
    said = [call.args[0] for call in logs.logger.return_value.info.call_args_list]
    assert said == ["stopping", "start_given_up", "stopped"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="pipes that keep writes apart are Linux's")
def test_the_ready_line_is_one_write(tmp_path: Path) -> None:
    """Python does not buffer in most containers: a log line of another thread must not split the ready line."""
    reader, writer = os.pipe2(os.O_DIRECT)  # each read returns what one write wrote (pipe(2))
    with interruptible(), os.fdopen(reader, "rb", buffering=0) as packets:
        process = subprocess.Popen(
            [*COMMAND, "standalone", *PORTS],
            stdout=writer,
            stderr=subprocess.DEVNULL,
            env=environment({"PYTHONUNBUFFERED": "1"}),
            cwd=tmp_path,
        )
        os.close(writer)
        try:
            assert packets.read(4096).decode().startswith("ready namesrv=")
            os.kill(process.pid, signal.SIGTERM)
            assert packets.read(4096) == b"", "the end of the line came by itself"
        finally:
            process.kill()
            process.wait()


def test_messages_survive_kill_9(start_daemon: Any, run_command: Any, tmp_path: Path) -> None:
    data = str(tmp_path / "store")
    daemon = start_daemon("standalone", *PORTS, "--data-dir", data)
    lines = b"".join(b"message %d\n" % number for number in range(5000))
    assert run_command("produce", "T", "--namesrv", daemon.namesrv, stdin=lines).returncode == 0
    assert daemon.end(signal.SIGKILL)[0] == -signal.SIGKILL
    daemon = start_daemon("standalone", *PORTS, "--data-dir", data)
    done = run_command("consume", "T", "--namesrv", daemon.namesrv)
    assert sorted(done.stdout.splitlines()) == sorted(lines.splitlines()), done.stderr
    assert daemon.end()[0] == 0


def test_name_server_and_broker_in_processes_of_their_own(start_daemon: Any, run_command: Any) -> None:
    namesrv = start_daemon("namesrv", "--namesrv-port", "0")
    assert namesrv.ready == f"ready namesrv={namesrv.namesrv}\n"
    broker = start_daemon("broker", "--broker-port", "0", "--namesrv", namesrv.namesrv)
    assert broker.ready == f"ready broker={broker.broker}\n"
    until_registered(namesrv.namesrv)
    assert run_command("produce", "T", "-m", "hello", "--namesrv", namesrv.namesrv).returncode == 0
    until_registered(namesrv.namesrv, topic="T")
    assert run_command("consume", "T", "--namesrv", namesrv.namesrv).stdout == b"hello\n"
    assert broker.end()[0] == 0
    assert namesrv.end()[0] == 0


def test_a_second_broker_on_the_same_store_is_refused(start_daemon: Any, run_command: Any) -> None:
    daemon = start_daemon("standalone", *PORTS)
    done = run_command("standalone", *PORTS)
    assert done.returncode == 3
    assert done.stdout == b""
    told = done.stderr.decode().partition("error: ")[2]
    assert "on the same store" in told
    assert f"pid {daemon.process.pid}" in told
    assert "Traceback" not in told
    assert daemon.end()[0] == 0


@pytest.mark.parametrize("option", ["--namesrv-port", "--broker-port"])
def test_a_port_in_use_is_named(run_command: Any, option: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = run_command("standalone", *PORTS, option, port)
    assert done.returncode == 3
    assert done.stdout == b""
    errors = done.stderr.decode()
    assert f"127.0.0.1:{port}" in errors
    assert "in use" in errors
    assert "Traceback" not in errors


def test_a_port_in_use_does_not_touch_the_store(run_command: Any, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        run_command("standalone", "--namesrv-port", "0", "--broker-port", str(taken.getsockname()[1]))
    assert not (tmp_path / "pocketmq-data" / "commitlog").exists()


def test_an_unknown_key_in_a_file_is_reported_with_line_and_nearest_name(run_command: Any, tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text("[broker]\nbroker_name = 'x'\n\n[store]\nflush_disk_typ = 'SYNC_FLUSH'\n")
    done = run_command("standalone", "--config", "my.toml")
    assert done.returncode == 2
    told = (
        "error: bad setting: my.toml line 5: unknown key 'flush_disk_typ' in [store]; did you mean 'flush_disk_type'?\n"
    )
    assert done.stderr.decode() == told


@pytest.mark.parametrize(
    ("arguments", "env", "told"),
    [
        (("--config", "none.toml"), {}, "none.toml: No such file or directory"),
        (("--set", "flush_disk_type=NEVER"), {}, "store.flush_disk_type='NEVER' is not 'ASYNC_FLUSH' or 'SYNC_FLUSH'"),
        (("--set", "flush_disk_typ=X"), {}, "did you mean 'store.flush_disk_type'?"),
        (
            (),
            {"POCKETMQ_STORE__MAX_MESSAGE_SIZE": "big"},
            "POCKETMQ_STORE__MAX_MESSAGE_SIZE: store.max_message_size='big'",
        ),
        (("--log-format", "xml"), {}, "--log-format: log.format='xml' is not 'console' or 'json'"),
        (("--set", "broker.listen_port=70000"), {}, "broker.listen_port=70000"),
        (("--set", "remoting.connections_max=0"), {}, "remoting.connections_max=0"),
        (("--namesrv-port", "70000"), {}, "--namesrv-port"),
        (("--no-such-option",), {}, "No such option"),
    ],
)
def test_a_wrong_setting_is_one_clear_error_and_exit_code_2(
    run_command: Any, arguments: tuple[str, ...], env: dict[str, str], told: str
) -> None:
    done = run_command("standalone", *arguments, env=env)
    assert done.returncode == 2
    assert told in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()


def test_settings_come_from_file_environment_and_flags(start_daemon: Any, run_command: Any, tmp_path: Path) -> None:
    """The file sets the broker's name, a variable the queue count of new topics, a flag the segment size."""
    (tmp_path / "my.toml").write_text("[broker]\nbroker_name = 'from-file'\ndefault_topic_queue_nums = 3\n")
    daemon = start_daemon(
        "standalone",
        *PORTS,
        *("--config", "my.toml", "--set", "mapped_file_size_commit_log=8_388_608", "--log-format", "json"),
        env={"POCKETMQ_BROKER__DEFAULT_TOPIC_QUEUE_NUMS": "2"},
    )
    assert run_command("produce", "T", "-m", "x", "--namesrv", daemon.namesrv).returncode == 0
    described = run_command("topic", "describe", "T", "--namesrv", daemon.namesrv).stdout.decode().splitlines()
    assert len(described) == 3
    assert "from-file" in described[1]
    segment = next((tmp_path / "pocketmq-data" / "commitlog").glob("0*"))
    assert segment.stat().st_size == 8_388_608
    code, _, errors = daemon.end()
    assert code == 0
    lines = [line for line in errors.splitlines() if not line.startswith("warning: disk of ")]
    assert all(line.startswith('{"timestamp":') for line in lines)


def test_a_store_directory_that_cannot_be_made_is_reported(run_command: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run_command("standalone", *PORTS, "--data-dir", str(tmp_path / "file" / "store"))
    assert done.returncode == 3
    assert "file" in done.stderr.decode().splitlines()[-1]
    assert "Traceback" not in done.stderr.decode()


def test_the_files_in_conf_show_the_defaults(tmp_path: Path) -> None:
    """Every key in them exists, and its value is the default, except for commented-out keys."""
    from pocketmq.cli.daemon.daemon import SECTIONS, load_settings

    defaults = load_settings({}, None, [], {})
    for path in (Path(__file__).parents[3] / "conf").glob("*.toml"):
        settings = load_settings({}, str(path), [], {})
        for kind in SECTIONS.values():
            assert settings.get(kind) == defaults.get(kind), path


def test_help_is_fast_because_it_imports_little(run_process: Any) -> None:
    script = (
        "import sys; sys.argv = ['pocketmq', '--help']\n"
        "from pocketmq.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = ('numpy', 'uvloop', 'structlog', 'pyarrow', 'pocketmq.broker.app')\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    done = run_process("-c", script, command=[sys.executable])
    assert done.stdout.decode().splitlines()[-1] == "[]"
    assert "Exit codes" in done.stdout.decode()


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


FULL_DISK = """
from pocketmq.store.disk.os_file_system import OsFileSystem
OsFileSystem.free_bytes = lambda self, path: (80 * 10**6, 10**9)
from pocketmq.cli.main import main
main()
"""
"""A daemon on a disk of 1 GB with 80 MB free: a new store takes files of 16 MiB."""


def test_a_disk_above_a_limit_and_a_former_name_are_reported_before_anything_else(
    start_daemon: Any, tmp_path: Path
) -> None:
    """One line on standard error; the ready line stays the first on standard output. A setting's former name is the
    next line, and the broker starts with both."""
    former = "broker.named_transaction_time_out"
    data = tmp_path / "not" / "there" / "yet"
    words = ["broker", "--broker-port", "0", "--namesrv", "127.0.0.1:1", "--data-dir", str(data)]
    words += ["--set", "store.disk_space_warning_level_ratio=90"]
    daemon = start_daemon(*words, "--set", f"{former}=60000", command=[sys.executable, "-c", FULL_DISK])
    assert daemon.ready.startswith("ready ")
    code, rest, errors = daemon.end()
    assert (code, rest) == (0, "")
    warnings = [line for line in errors.splitlines() if line.startswith("warning: ")]
    assert warnings == errors.splitlines()[:2]
    assert warnings[0].startswith(
        f"warning: the disk of {data} is 92 % full: above 90 % sends are refused "
        "(store.disk_space_warning_level_ratio); "
        "free "
    )
    assert warnings[1] == f"warning: --set {former}=60000: {former} is now broker.staged_transaction_time_out"


@pytest.mark.parametrize(
    ("former", "name"),
    [
        ("named_transaction_time_out", "staged_transaction_time_out"),
        ("named_transaction_size_bytes_max", "staged_transaction_size_bytes_max"),
    ],
)
def test_settings_are_taken_under_their_former_names(former: str, name: str) -> None:
    from pocketmq.broker.config import BrokerConfig
    from pocketmq.cli.daemon.daemon import load_settings

    with pytest.warns(DeprecationWarning, match=f"{former} is now broker.{name}"):
        settings = load_settings({}, None, [f"broker.{former}=4711"], {})
    assert getattr(settings.get(BrokerConfig), name) == 4711


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 on this machine")
def test_a_standalone_on_ipv6(start_daemon: Any, run_command: Any) -> None:
    """Addresses have brackets wherever a port follows."""
    daemon = start_daemon("standalone", *PORTS, "--host", "::1", env={"POCKETMQ_METRICS__LISTEN_PORT": "0"})
    assert daemon.namesrv.startswith("[::1]:")
    assert daemon.broker.startswith("[::1]:")
    there = {"POCKETMQ_NAMESRV": daemon.namesrv}
    assert run_command("produce", "Six", "-m", "hello", env=there).returncode == 0
    assert run_command("consume", "Six", env=there).stdout == b"hello\n"
    assert run_command("topic", "list", env=there).returncode == 0
    assert daemon.end()[0] == 0


def test_a_pipe_that_is_not_read_does_not_hold_up_the_stop(tmp_path: Path) -> None:
    """A log collector that stands still must not keep a broker from ending cleanly."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with interruptible(), os.fdopen(reader, "rb", buffering=0):
        try:
            while os.write(writer, b"x" * 4096):
                pass
        except BlockingIOError:
            pass
        os.set_blocking(writer, True)
        process = subprocess.Popen(
            [*COMMAND, "standalone", *PORTS], stdout=subprocess.PIPE, stderr=writer, env=environment(), cwd=tmp_path
        )
        os.close(writer)
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith(b"ready")
            os.kill(process.pid, signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.communicate()
    assert not (tmp_path / "pocketmq-data" / "abort").exists()
