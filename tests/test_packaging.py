"""The layout holds: every package has its link and is imported by its full name. What is in the wheel:
``tests/install/test_wheel.py``."""

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

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


def test_an_index_page_and_the_pages_of_a_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """What setup.py says without a build: no dead link, a line that says where the pages are, and files that exist."""
    given: dict[str, Any] = {}
    monkeypatch.setattr("setuptools.setup", given.update)
    monkeypatch.chdir(ROOT)
    runpy.run_path(str(ROOT / "setup.py"))
    description = given["long_description"]
    assert re.findall(r"\]\((?![a-z]+:)[^)]*\)", description) == [], "such a link is dead on a package index"
    assert "![" not in description
    assert "!Overview" not in description, "a picture of the repository is left out as a whole"
    assert "share/doc/pocketmq" in description.partition("\n## ")[0]
    folders = dict(given["data_files"])
    assert {"share/doc/pocketmq", "share/doc/pocketmq/docs", "share/doc/pocketmq/examples/flights"} <= set(folders)
    files = [name for names in folders.values() for name in names]
    assert {"CHANGELOG.md", "docs/deployment.md", "docs/adr/0004-packaging.md"} <= set(files)
    assert all((ROOT / name).is_file() for name in files)
