"""A broker and a name server in a process of their own, as the benchmarks need them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path


class BrokerProcess:
    """``pocketmq standalone`` on ephemeral ports; a context manager. ``ready_s``: from start to the ready line.

    What it logs goes to ``log_path``, beside its data.
    """

    def __init__(self, data_dir: Path, *settings: str) -> None:
        self._command = [sys.executable, "-m", "pocketmq.cli.main", "standalone", "--data-dir", str(data_dir)]
        self._command += ["--namesrv-port", "0", "--broker-port", "0", "--set", "log.level=warning"]
        for setting in settings:
            self._command += ["--set", setting]
        self.log_path = data_dir.with_name(data_dir.name + ".log")
        self.namesrv = ""
        self.address = ""
        self.ready_s = 0.0

    def start(self) -> None:
        """Start and wait for the ready line."""
        begin = time.perf_counter()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith("ready "):
            raise RuntimeError(f"the broker did not start: {line!r}; {self.log_path.read_text()[-2000:]}")
        self.ready_s = time.perf_counter() - begin
        parts = dict(part.split("=", 1) for part in line.split()[1:])
        self.namesrv, self.address = parts["namesrv"], parts["broker"]

    def stop(self, kind: signal.Signals = signal.SIGTERM) -> float:
        """Send ``kind`` and wait; return the seconds until it was gone."""
        begin = time.perf_counter()
        self.process.send_signal(kind)
        self.process.wait(60)
        return time.perf_counter() - begin

    def memory_mb(self) -> dict[str, float]:
        """Return resident and anonymous megabytes: mapped log pages are resident, but belong to the page cache."""
        fields = dict(line.split(":", 1) for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines())
        return {name: int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon", "RssFile")}

    def cpu_s(self) -> float:
        """Return the CPU seconds used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self) -> "BrokerProcess":
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.stop()
