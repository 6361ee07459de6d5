"""``pocketmq standalone`` as a process of its own, for RocketMQ's programs to talk to.

    with pocketmq_server(tmp_path, "broker.trace_topic_enable=true") as server:
        server.namesrv, server.broker          # "127.0.0.1:41234", …
        server.restart()                       # SIGKILL, then again on the same ports and store

Lives here: start, end, settings that make waits short.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_S = 60.0
STOP_S = 20.0
DELAY_LEVELS = "1s 2s 3s 4s 5s 6s 7s 8s 9s 10s 11s 12s 13s 14s 15s 16s 17s 18s"
"""Level 3, the first retry, takes 3 s instead of 10 s."""
SHORT_WAITS = (
    f"store.message_delay_level={DELAY_LEVELS}",
    "broker.transaction_time_out=1000",
    "broker.transaction_check_interval=1000",
    "store.mapped_file_size_commit_log=67108864",
    "store.max_hash_slot_num=5000",
    "store.max_index_num=20000",
)
_READY = re.compile(r"ready namesrv=(\S+) broker=(\S+)")


class PocketMQServer:
    """One standalone process on a data directory; ``namesrv`` and ``broker`` are its addresses, which stay the same."""

    def __init__(self, directory: Path, settings: tuple[str, ...]) -> None:
        """Prepare; start no process."""
        self.directory, self.data_dir = directory, directory / "data"
        self.namesrv = self.broker = ""
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Return its process id."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it on its former ports, and wait until it serves."""
        ports = [address.rsplit(":", 1)[1] if address else "0" for address in (self.namesrv, self.broker)]
        command = [sys.executable, "-m", "pocketmq.cli.main", "standalone", "--data-dir", str(self.data_dir)]
        command += ["--namesrv-port", ports[0], "--broker-port", ports[1], "--log-format", "json"]
        command += [text for setting in self._settings for text in ("--set", setting)]
        root = Path(__file__).parents[2]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(root / "src"), str(root)))}
        output = self.directory / f"pocketmq-{time.monotonic_ns()}.log"
        with output.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        give_up_s = time.monotonic() + START_S
        while not (ready := _READY.search(output.read_text(errors="replace"))):
            if self._process.poll() is not None or time.monotonic() > give_up_s:
                raise RuntimeError(f"pocketmq did not start:\n{output.read_text(errors='replace')[-3000:]}")
            time.sleep(0.05)
        self.namesrv, self.broker = ready[1], ready[2]

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it and wait for the end."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def restart(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End it and start it again."""
        self.end(how)
        self.start()

    def kill_and_restart(self) -> None:
        """End it with SIGKILL, and start it on its store and ports."""
        self.restart()

    def log_text(self) -> str:
        """Return its log over all starts."""
        return "".join(path.read_text(errors="replace") for path in sorted(self.directory.glob("pocketmq-*.log")))


@contextmanager
def pocketmq_server(directory: Path, *settings: str, broker_port: int = 0) -> Iterator[PocketMQServer]:
    """Run a name server and a broker in one process until the block ends; ``settings`` follow ``SHORT_WAITS``. With a
    port given the broker has its VIP channel, too.
    """
    directory.mkdir(parents=True, exist_ok=True)
    server = PocketMQServer(directory, (*SHORT_WAITS, *settings))
    if broker_port:
        server.broker = f"127.0.0.1:{broker_port}"
    try:
        server.start()
        yield server
    finally:
        server.end()
