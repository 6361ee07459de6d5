"""The wheel alone, in a clean virtual environment of each Python from 3.11 to 3.14 that can be had.

    python -m tests.install.smoke dist/pocketmq-0.1.0-py3-none-any.whl [--python 3.14] [--root DIRECTORY]

``--root``: also the Python of a root file system, such as one of a newer Debian (``tests/install/namespace.py``).
What the wheel needs comes from pip's usual places. Ends with 1 if one fails, and names the versions that were not
found: they are no failure.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.install.namespace import Namespace

MINORS: Final = (11, 12, 13, 14)
USE_IT: Final = Path(__file__).with_name("use_it.py")
PIP_S: Final = 400
USE_S: Final = 300


def interpreter(minor: int) -> Path | None:
    """Return a Python 3.``minor`` that can make virtual environments: pyenv's, else the one on PATH."""
    found = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python3.{minor}"))
    on_path = shutil.which(f"python3.{minor}")
    for each in [*found, *([Path(on_path)] if on_path else [])]:
        done = subprocess.run([each, "-c", "import ensurepip, venv"], capture_output=True, check=False)
        if done.returncode == 0:
            return each
    return None


def in_environment(python: Path, wheel: Path) -> str:
    """Install ``wheel`` into a new environment and use it there; return what that printed. Raise ``CalledProcessError``
    with the output of what failed."""
    with tempfile.TemporaryDirectory(prefix="pocketmq-smoke-") as directory:
        place = Path(directory)
        own = place / "venv" / "bin" / "python"
        empty = place / "empty"
        empty.mkdir()
        shutil.copy(USE_IT, place)
        _run([python, "-m", "venv", place / "venv"], empty, PIP_S)
        _run([own, "-m", "pip", "install", "--quiet", wheel.resolve()], empty, PIP_S)
        _run([own, "-m", "pip", "check"], empty, PIP_S)
        return _run([own, "-I", place / "use_it.py"], empty, USE_S)


def _run(command: Sequence[str | Path], directory: Path, timeout_s: float) -> str:
    done = subprocess.run(
        list(map(str, command)),
        cwd=directory,
        env=Namespace.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        print(done.stdout[-4000:], file=sys.stderr)
        raise subprocess.CalledProcessError(done.returncode, done.args, done.stdout)
    return done.stdout


def in_root(root: Path, wheel: Path) -> str:
    """Do the same with the Python of a root file system."""
    with tempfile.TemporaryDirectory(prefix="pocketmq-smoke-", dir=root / "tmp") as directory:
        place = Path(directory)
        inside = Path("/") / place.relative_to(root)
        for path in (USE_IT, wheel):
            shutil.copy(path, place)
        (place / "empty").mkdir()
        steps = f"""set -e
cd {inside}/empty
python3 --version
python3 -m venv {inside}/venv
{inside}/venv/bin/python -m pip install --quiet {inside}/{wheel.name}
{inside}/venv/bin/python -m pip check
{inside}/venv/bin/python -I {inside}/use_it.py"""
        return Namespace(root).run(["/bin/sh", "-c", steps], timeout_s=PIP_S + USE_S)


def main() -> int:
    """Try each version; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.install.smoke")
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--python", action="append", help="only this version, such as 3.14; repeatable")
    parser.add_argument("--root", type=Path, action="append", default=[], help="a root file system with Python")
    arguments = parser.parse_args()
    minors = [minor for minor in MINORS if not arguments.python or f"3.{minor}" in arguments.python]
    failed, missing = False, []
    tries: list[tuple[str, Path, bool]] = []
    for minor in minors:
        python = interpreter(minor)
        if python is None:
            missing.append(f"3.{minor}")
        else:
            tries.append((f"Python 3.{minor} ({python})", python, False))
    tries += [(f"the Python of {root}", root, True) for root in arguments.root]
    for name, path, is_root in tries:
        print(name, flush=True)
        try:
            print((in_root if is_root else in_environment)(path, arguments.wheel).rstrip(), flush=True)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            failed = True
            print(f"  FAILED: {error}\n{error.output}", flush=True)
    if missing:
        print(f"not on this machine: Python {', '.join(missing)}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
