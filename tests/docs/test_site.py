"""The site of docs/: every page is behind a door of the index, and the site builds without a warning."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
EXTRA: Final = ("furo", "myst_parser", "sphinx", "sphinxcontrib.mermaid")


@pytest.fixture(scope="module")
def conf() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_site_conf", DOCS / "site" / "conf.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_page_is_behind_one_of_four_doors(conf: ModuleType) -> None:
    """The navigation is made from the index: a page without a row there would be in no menu."""
    doors = conf.DOOR.findall((DOCS / "README.md").read_text())
    assert [title.partition(":")[0] for title, _ in doors] == ["Tutorial", "How-to", "Reference", "Explanation"]
    behind = [page for _, text in doors for page in conf.PAGE.findall(text)]
    assert sorted(behind) == sorted(path.stem for path in DOCS.glob("*.md") if path.stem != "README")


def test_the_navigation_lists_each_door_once(conf: ModuleType) -> None:
    made = conf.navigation(
        "# Index\n\n## A door\n\n| page | about |\n|---|---|\n| [One](one.md) | 1 |\n| [Two](two.md) | 2 |\n"
    )
    assert ":caption: A door\n\none\ntwo\n```" in made


def test_links_to_code_become_names(conf: ModuleType) -> None:
    """The site holds the pages only; links between them stay."""
    page = "[Sending](sending.md#options), [examples](../examples/flights/README.md), [adr/](adr/), ![x](x.svg)"
    assert conf.outside(page, DOCS) == (
        "[Sending](sending.md#options), examples (`examples/flights/README.md`), adr/ (`docs/adr`), ![x](x.svg)"
    )


def test_each_module_of_the_api_page_gets_its_docstrings(conf: ModuleType) -> None:
    page = conf.with_docstrings((DOCS / "api.md").read_text())
    modules = re.findall(r"^## `(.+)`$", page, re.MULTILINE)
    assert modules == re.findall(r"^\.\. automodule:: (.+)$", page, re.MULTILINE) != []


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(300)
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """A warning is a link that leads nowhere, a page in no menu, or a docstring that is no valid markup."""
    for module in EXTRA:
        pytest.importorskip(module, reason="the site needs pip install -e '.[docs]'")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-c", "docs/site", "docs"]
    done = subprocess.run([*command, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    assert "Producer" in (tmp_path / "api.html").read_text()
    assert {"index.html", "search.html", "searchindex.js"} <= {path.name for path in tmp_path.iterdir()}
