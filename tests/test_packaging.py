"""The layout holds: every package has its link and is imported by its full name. What is in the wheel:
``tests/install/test_wheel.py``."""

import tomllib
from pathlib import Path

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
