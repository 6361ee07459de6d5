"""What the tests of an installation share: one build of wheel and source distribution, one root file system."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.install.dockerfile import Image, build
from tests.install.namespace import Namespace, need_namespaces

ROOT = Path(__file__).resolve().parents[2]
MIRROR = "http://deb.debian.org/debian"
SUITE = "trixie"
BOOTSTRAP_S = 550


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build once, as ``make dist`` does: the wheel from the source distribution. Return the directory."""
    pytest.importorskip("build")
    place = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(place), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=Namespace.environment())
    assert done.returncode == 0, done.stdout + done.stderr
    return place


@pytest.fixture(scope="session")
def wheel(dist: Path) -> Path:
    """Return the wheel."""
    [wheel] = dist.glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def debian_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield the root file system of Debian's base system: that of POCKETMQ_DEBIAN_ROOT, else a new one. Skip where
    none can be made."""
    need_namespaces()
    if given := os.environ.get("POCKETMQ_DEBIAN_ROOT"):
        yield Path(given)
        return
    if shutil.which("debootstrap") is None:
        pytest.skip("debootstrap is not installed, and POCKETMQ_DEBIAN_ROOT names no root file system of Debian")
    root = tmp_path_factory.mktemp("debian") / SUITE
    command = ["debootstrap", "--variant=minbase", SUITE, str(root), MIRROR]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BOOTSTRAP_S, check=False)
        if done.returncode != 0:
            pytest.skip(f"no root file system of Debian: {done.stdout[-500:]}")
        yield root
    except subprocess.TimeoutExpired:
        pytest.skip(f"debootstrap took more than {BOOTSTRAP_S} s")
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def image(debian_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """Yield the image of the Dockerfile."""
    place = tmp_path_factory.mktemp("image")
    try:
        yield build(ROOT / "Dockerfile", debian_root, place)
    finally:
        shutil.rmtree(place)  # half a gigabyte
