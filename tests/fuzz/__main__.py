"""``make fuzz``: every target for some minutes, guided by the branches that its inputs reach.

``python -m tests.fuzz [--minutes 10] [--jobs 2] [--only a,b] [--corpus DIRECTORY]``. The time is shared by the targets.
Each begins with its seeds, the committed crashes and the corpus of earlier runs (``build/fuzz``), and ends at its first
crash: the input is kept in ``tests/vectors/fuzz``, where ``make test`` runs it from then on. Cure the code, not the
vector. Needs atheris, which has wheels for CPython 3.11 and 3.12.
"""

import argparse
import concurrent.futures
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from tests.fuzz.target import INPUT_BYTES_MAX
from tests.fuzz.targets import CRASHES, TARGETS

MEMORY_MIB_MAX: Final = 2048
UNIT_S_MAX: Final = 25
"""Against a hang only: whether an input is too slow is counted, not timed."""
_DONE: Final = re.compile(r"#(\d+)\s+\w+.*?cov: (\d+) ft: (\d+) corp: (\d+)")


@dataclass(slots=True, frozen=True)
class Run:
    """The figures of one target. ``edges``: branches reached in PocketMQ's modules, those of the seeds included."""

    name: str
    executions: int
    edges: int
    inputs: int
    crash: str
    """Where the crash is, and its last lines; empty for none."""


def seeded(name: str, corpus: Path) -> Path:
    """Return the directory of a target's inputs, with its seeds and the committed crashes."""
    directory = corpus / name
    directory.mkdir(parents=True, exist_ok=True)
    known = list(TARGETS[name].seeds())
    known += [path.read_bytes() for path in sorted((CRASHES / name).glob("*"))]
    for data in known:
        if len(data) <= INPUT_BYTES_MAX:
            (directory / sha256(data).hexdigest()[:16]).write_bytes(data)
    return directory


def fuzz(name: str, corpus: Path, seconds: float) -> Run:
    """Run one target."""
    with tempfile.TemporaryDirectory() as found:
        words = [sys.executable, "-m", "tests.fuzz.one", name, f"-max_total_time={max(seconds, 1):.0f}"]
        words += [f"-rss_limit_mb={MEMORY_MIB_MAX}", f"-timeout={UNIT_S_MAX}", f"-max_len={INPUT_BYTES_MAX}"]
        words += [f"-artifact_prefix={found}/", str(seeded(name, corpus))]
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", env=os.environ, check=False)
        crash = ""
        for path in sorted(Path(found).iterdir()):
            if not path.name.startswith("slow-unit"):
                crash = f"{_keep(name, path)}\n" + _traceback(done.stdout + done.stderr)
        figures = _DONE.findall(done.stderr)
        if done.returncode and not crash:
            crash = f"ended with {done.returncode}\n{done.stderr[-3000:]}"
    executions, edges, _, inputs = map(int, figures[-1]) if figures else (0, 0, 0, 0)
    return Run(name, executions, edges, inputs, crash)


def _traceback(output: str) -> str:
    """Return the last lines of what a run printed, without the modules and the input's bytes."""
    lines = [line for line in output.splitlines() if not line.startswith(("INFO: ", "WARNING: ", "0x", "\\"))]
    return "\n".join(line[:300] for line in lines if not line.startswith("#"))[-5000:]


def _keep(name: str, path: Path) -> Path:
    kept = CRASHES / name / path.name[:24]
    kept.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, kept)
    return kept


def main() -> int:
    """Fuzz all targets, and print their figures; return 1 if one crashed, 2 without atheris."""
    parser = argparse.ArgumentParser("python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="of all jobs together: their wall time")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="comma separated; default all: " + ", ".join(TARGETS))
    parser.add_argument("--corpus", type=Path, default=Path("build/fuzz"))
    chosen = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        version = ".".join(map(str, sys.version_info[:2]))
        print(f"make fuzz needs atheris, which has no wheel for this Python {version}: make PYTHON=python3.12 fuzz")
        return 2
    names = [name for name in chosen.only.split(",") if name] or list(TARGETS)
    seconds = chosen.minutes * 60 * chosen.jobs / len(names)
    bad = 0
    print(f"{'target':<16} {'executions':>12} {'edges':>7} {'inputs':>7}", flush=True)
    with concurrent.futures.ThreadPoolExecutor(chosen.jobs) as jobs:
        for run in jobs.map(lambda name: fuzz(name, chosen.corpus, seconds), names):
            print(f"{run.name:<16} {run.executions:>12,} {run.edges:>7,} {run.inputs:>7,}", flush=True)
            if run.crash:
                bad += 1
                print(f"CRASH in {run.name}: {run.crash}", flush=True)
    print(f"fuzz: {len(names)} targets, {bad} crashed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
