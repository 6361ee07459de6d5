"""A real Spark standalone cluster on loopback: a master and two workers, each a process of its own.

Lives here: ``SparkCluster``; a Python without this package, for executors that get it as a zip file.
"""

import os
import re
import subprocess
import sys
import time
import venv
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyspark

START_S: Final = 240.0
STOP_S: Final = 20.0
WORKERS: Final = 2
HOME: Final = Path(pyspark.__file__).parent


class SparkCluster:
    """A context manager. ``master``: the ``spark://`` address. Ports are free ones that the system chose."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master = ""

    def __enter__(self) -> Self:
        try:
            log = self._start("master", "org.apache.spark.deploy.master.Master")
            self.master = self._wait(log, r"Starting Spark master at (spark://\S+)")
            size = ["--cores", "1", "--memory", "512m"]
            logs = [
                self._start(
                    f"worker{number}",
                    "org.apache.spark.deploy.worker.Worker",
                    *size,
                    "--work-dir",
                    str(self._directory / f"work{number}"),
                    self.master,
                )
                for number in range(WORKERS)
            ]
            for each in logs:
                self._wait(each, r"(Successfully registered with master)")
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _start(self, name: str, class_name: str, *arguments: str) -> Path:
        log = self._directory / f"{name}.log"
        command = [str(HOME / "bin" / "spark-class"), class_name, "--host", "127.0.0.1", "--port", "0"]
        environment = {
            **os.environ,
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
        }
        with log.open("wb") as output:
            self._processes.append(
                subprocess.Popen(
                    [*command, "--webui-port", "0", *arguments], stdout=output, stderr=output, env=environment
                )
            )
        return log

    def _wait(self, log: Path, pattern: str) -> str:
        give_up_s = time.monotonic() + START_S
        while time.monotonic() < give_up_s:
            found = re.search(pattern, log.read_text(errors="replace"))
            if found:
                return found[1]
            if any(process.poll() is not None for process in self._processes):
                break
            time.sleep(0.05)
        raise RuntimeError(f"Spark's {log.stem} did not start: {log.read_text(errors='replace')[-3000:]}")

    def _stop(self) -> None:
        for process in reversed(self._processes):  # a worker stops its executors
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def python_without_pocketmq(directory: Path) -> str:
    """Return a Python with the libraries of this one, but without this package: its path has the files of
    ``site-packages``, but the ``.pth`` files there, which an editable installation needs, are not read.
    """
    import numpy

    venv.create(directory, with_pip=False)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = directory / "lib" / version / "site-packages"
    libraries = [str(Path(numpy.__file__).parents[1]), str(HOME.parent)]
    (packages / "libraries.pth").write_text("\n".join(dict.fromkeys(libraries)))
    python = str(directory / "bin" / "python")
    code = "import importlib.util, numpy, pyarrow, pyspark; print(importlib.util.find_spec('pocketmq'))"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    said = subprocess.run([python, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert said.stdout == "None\n", said.stdout + said.stderr
    return python
