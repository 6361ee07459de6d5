"""Wheel and source distribution: what is in them, and that they work without the tree around them."""

import re
import subprocess
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path, PurePosixPath

import pytest

from tests.install.smoke import MINORS, in_environment, interpreter

pytestmark = [pytest.mark.soak, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)(?:#[^)]*)?\)")
PAGES = "data/share/doc/pocketmq/"


def names_in(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


def tracked(*folders: str) -> set[str]:
    """Return the files that git knows; skip the test outside of a checkout."""
    try:
        listed = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return set(listed.stdout.splitlines())


def metadata(wheel: Path) -> Message:
    [name] = [name for name in names_in(wheel) if name.endswith(".dist-info/METADATA")]
    return Parser().parsestr(zipfile.ZipFile(wheel).read(name).decode())


def test_the_wheel_has_every_package_and_every_file_of_settings(wheel: Path) -> None:
    """As git knows them: a missing link, a forgotten package or pattern shows as a missing file."""
    packages = [path.name for path in (ROOT / "src" / "pocketmq").iterdir() if path.is_symlink()]
    assert "auth" in packages
    assert {f"pocketmq/{name}" for name in tracked(*packages)} <= names_in(wheel)
    assert "pocketmq/py.typed" in names_in(wheel)


def test_the_wheel_has_nothing_else(wheel: Path) -> None:
    strange = [
        name
        for name in names_in(wheel)
        if "__pycache__" in name or name.endswith((".pyc", ".jsonl")) or not name.startswith("pocketmq")
    ]
    assert strange == []


def test_the_pages_of_the_wheel_link_each_other(wheel: Path) -> None:
    """Every link from one of its pages leads to a file of the wheel; every tracked page is there."""
    pages = {name.partition(PAGES)[2] for name in names_in(wheel) if PAGES in name}
    assert {name for name in tracked("docs", "examples") if name.endswith(".md")} | {"CHANGELOG.md"} <= pages
    archive = zipfile.ZipFile(wheel)
    prefix = next(name.partition(PAGES)[0] for name in names_in(wheel) if PAGES in name) + PAGES
    dead = set()
    for page in (name for name in pages if name.endswith(".md")):
        for target in LINK.findall(re.sub(r"```.*?```", "", archive.read(prefix + page).decode(), flags=re.DOTALL)):
            path = _resolved(PurePosixPath(page).parent / target)
            if path not in pages and not any(each.startswith(f"{path}/") for each in pages):
                dead.add(f"{page}: {target}")
    assert dead == set()


def _resolved(path: PurePosixPath) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def test_an_index_page_has_what_it_shows(wheel: Path) -> None:
    told = metadata(wheel)
    assert told["Name"] == "pocketmq"
    assert told["License-Expression"] == "Apache-2.0"
    assert told["Author"]
    assert told["Requires-Python"] == ">=3.11"
    classifiers = told.get_all("Classifier") or []
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in MINORS} <= set(classifiers)
    assert told["Description-Content-Type"] == "text/markdown"
    description = str(told.get_payload())
    assert description.startswith("# PocketMQ\n")
    assert LINK.findall(description) == [], "such a link is dead on a package index"
    assert "share/doc/pocketmq" in description.partition("## ")[0]


def test_the_source_distribution_has_pages_and_settings_and_no_tests(dist: Path, wheel: Path) -> None:
    """What it has is enough for the wheel, which was built from it."""
    [path] = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    assert {"CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml", "setup.py", "Dockerfile", "compose.yaml"} <= names
    assert tracked("docs", "examples") <= names
    assert {f"src/pocketmq/{name}" for name in tracked("conf")} <= names
    assert not [name for name in names if name.startswith(("tests/", "bench/", "tools/")) or "__pycache__" in name]


@pytest.mark.parametrize("minor", MINORS)
def test_the_wheel_alone_serves_in_a_clean_environment(wheel: Path, minor: int) -> None:
    python = interpreter(minor)
    if python is None:
        pytest.skip(f"Python 3.{minor} is not on this machine; make smoke ARGS='--root DIR' takes a root file system's")
    assert "a broker started" in in_environment(python, wheel)
