"""Install the programs that tests need beside Python packages, where this is allowed; standard library only.

    python3 tests/ci/programs.py      # prints what a registry kept from us, as POCKETMQ_MAY_LACK takes it

Ends with 1 when a program is missing although apt answered: its tests would be skipped, and no report would show it. A
registry that does not answer is no fault of the tree: those programs are printed, and their tests may be skipped.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

PACKAGES: Final[Mapping[str, Sequence[str]]] = {
    "redis-server": ("redis-server",),
    "mariadbd": ("mariadb-server",),
    "postgres": ("postgresql",),
    "java": ("openjdk-17-jdk-headless", "default-jdk-headless"),
    "javac": ("openjdk-17-jdk-headless", "default-jdk-headless"),
    "mvn": ("maven",),
    "promtool": ("prometheus",),
}
"""Program to packages; the second is for distributions that no longer have the first."""
APT: Final = ("apt-get", "-q", "-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3")
UPDATE: Final = (*APT, "-o", "APT::Update::Error-Mode=any", "update")
"""Without the mode an update that reached no registry succeeds."""
APT_S: Final = 600.0

Run = Callable[[Sequence[str]], int]


def search_path() -> str:
    """Return where Debian puts servers, too: a directory that an installation has just made among them."""
    versions = map(str, Path("/usr/lib/postgresql").glob("*/bin"))
    return os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/libexec", *versions))


def missing() -> list[str]:
    """Return the missing programs."""
    path = search_path()
    return [program for program in PACKAGES if shutil.which(program, path=path) is None]


def run_apt(command: Sequence[str]) -> int:
    """Run apt quietly with its output on standard error. Return its exit code, 124 after a timeout."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        return subprocess.run(command, env=environment, stdout=sys.stderr, timeout=APT_S, check=False).returncode
    except subprocess.TimeoutExpired:
        return 124


def provide(find: Callable[[], list[str]], run: Run, *, may_install: bool) -> tuple[list[str], list[str]]:
    """Install the programs that ``find`` misses. Return (programs kept back by a registry, programs still missing)."""
    wanted = find()
    if not wanted:
        return [], []
    if not may_install:
        return [], wanted
    if run(UPDATE) != 0:
        return wanted, []
    for program in wanted:
        for package in PACKAGES[program]:
            if program not in find():
                break
            run([*APT, "-y", "install", "--no-install-recommends", package])
    return [], find()


def main() -> int:
    """Provide all programs; return the exit code."""
    may_install = os.geteuid() == 0 and shutil.which("apt-get") is not None
    kept_back, absent = provide(missing, run_apt, may_install=may_install)
    if kept_back:
        print(f"the package registry does not answer: without {', '.join(kept_back)}", file=sys.stderr)
    if absent:
        names = sorted({PACKAGES[program][0] for program in absent})
        print(f"missing: {', '.join(absent)}; apt-get install {' '.join(names)}", file=sys.stderr)
    print(" ".join(kept_back))
    return 1 if absent else 0


if __name__ == "__main__":
    sys.exit(main())
