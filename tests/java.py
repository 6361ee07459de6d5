"""Find a Java for Spark before ``make test``, or install one where this is allowed.

    python -m tests.java

One line says what was found or done. Ends with 0 in any case: where there is no Java, the tests of the pipeline say so
themselves, loudly (tests/pipeline/conftest.py).
"""

import os
import shutil
import subprocess
import sys

from pocketmq.pipeline.java import INSTALL_COMMAND, JavaMissing, find_java

PACKAGES = ("openjdk-17-jre-headless", "default-jre-headless")
"""The second is for distributions that no longer have the first."""
APT = ("apt-get", "-q", "-o", "DPkg::Lock::Timeout=300")


def may_install() -> bool:
    """Return whether this process can install packages unasked: it is root, and apt exists."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def install() -> None:
    """Install the first available package."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run([*APT, "update"], env=environment, stdout=subprocess.DEVNULL, check=False)
    for package in PACKAGES:
        command = [*APT, "-y", "install", "--no-install-recommends", package]
        if subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False).returncode == 0:
            return


def main() -> None:
    """Find or install a Java, and print which."""
    try:
        find_java()
        return
    except JavaMissing as missing:
        why = missing.why
    if not may_install():
        print(f"no Java for Spark ({why}): its tests cannot run; install one: sudo {INSTALL_COMMAND}", file=sys.stderr)
        return
    print(f"no Java for Spark ({why}): installing {PACKAGES[0]}", file=sys.stderr, flush=True)
    install()
    try:
        print(f"Java for Spark: {find_java()}", file=sys.stderr)
    except JavaMissing as missing:
        print(f"it did not help: {missing}", file=sys.stderr)


if __name__ == "__main__":
    main()
