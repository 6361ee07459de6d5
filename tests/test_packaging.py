"""The layout holds: every package has its link, imports by its full name, and is in the wheel."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = sorted(
    path.parent.name for path in ROOT.glob("*/__init__.py") if path.parent.name not in {"tests", "bench", "examples"}
)


def test_every_package_has_its_link() -> None:
    """Each top-level folder with an ``__init__.py`` is reachable as ``pocketmq.<name>``, ``conf/`` lies beside
    them, and no link dangles."""
    links = sorted(path.name for path in (ROOT / "src" / "pocketmq").iterdir() if path.is_symlink())
    assert links == sorted([*PACKAGES, "conf"])
    for name in links:
        link = ROOT / "src" / "pocketmq" / name
        assert link.resolve() == ROOT / name
        assert not link.readlink().is_absolute()


def test_every_package_is_banned_under_its_bare_name() -> None:
    """No module may import the checkout's folders as ``store`` or ``client``; ruff bans each of these names."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert sorted(config["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"]) == PACKAGES


def tracked_modules() -> set[str]:
    """Return the modules of the packages by their names in a wheel, from git if this is a checkout."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", *PACKAGES, "src"], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    names = {name for name in listed.stdout.splitlines() if name.endswith(".py")}
    return {name.removeprefix("src/") if name.startswith("src/") else f"pocketmq/{name}" for name in names}


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_wheel_built_from_the_sdist_holds_every_module(tmp_path: Path) -> None:
    """A missing link, a changed backend or a forgotten subpackage shows as a missing file."""
    expected = tracked_modules()
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path / "dist"), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    [wheel] = (tmp_path / "dist").glob("*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".py")}
    assert expected <= packed, sorted(expected - packed)
    for name in ("py.typed", "conf/standalone.toml", "conf/sync-pair/namesrv.toml"):
        assert f"pocketmq/{name}" in zipfile.ZipFile(wheel).namelist()
    [metadata] = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".dist-info/METADATA")]
    description = zipfile.ZipFile(wheel).read(metadata).decode().partition("\n\n")[2]
    assert description.startswith("# PocketMQ\n")
    assert re.findall(r"\]\((?![a-z]+:)[^)]*\)", description) == [], "such a link is dead on a package index"
