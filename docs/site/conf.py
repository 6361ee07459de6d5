"""Sphinx's settings for ``make docs``: the pages of docs/ as a site, with search and the API reference.

The index, docs/README.md, is also the navigation: each heading is a door, each page that its list links is behind it.
The API pages list their names for readers of the repository; the site adds each name's docstring and signature.
"""

import importlib
import re
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

project = "PocketMQ"
copyright = "PocketMQ contributors, Apache-2.0"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinxcontrib.mermaid"]
root_doc = "README"
exclude_patterns = ["benchmarks/*.jsonl", "site", "threat_rows"]
html_theme = "furo"
html_title = "PocketMQ"
html_show_sphinx = False
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
pygments_style = "default"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_preserve_defaults = True
nitpicky = False
suppress_warnings = ["myst.header"]

DOOR: Final = re.compile(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
PAGE: Final = re.compile(r"^\| \[[^\]]+\]\(([\w/-]+)\.md\)", re.MULTILINE)
MODULE: Final = re.compile(r"^## `(pocketmq[\w.]*)`\n", re.MULTILINE)
LINK: Final = re.compile(r"(?<!!)\[([^\]]+)\]\(([^):#]+)(#[^)]*)?\)")


def navigation(index: str) -> str:
    """Return the index with a hidden list of pages for each of its doors."""
    parts = [index]
    for title, text in DOOR.findall(index):
        pages = PAGE.findall(text)
        if pages:
            parts.append(_toctree(title, pages))
    return "\n".join([*parts, _toctree("Decisions", ["adr/*"]), _toctree("Reports", ["benchmarks/*"])])


def _toctree(title: str, pages: list[str]) -> str:
    return f"```{{toctree}}\n:hidden:\n:glob:\n:maxdepth: 1\n:caption: {title}\n\n" + "\n".join(pages) + "\n```\n"


def with_docstrings(page: str) -> str:
    """Return the API page with the signatures and docstrings of each module it has a heading for. What a package of it
    exports as well is explained there."""
    modules = [importlib.import_module(name) for name in MODULE.findall(page)]

    def directive(match: re.Match[str]) -> str:
        module = importlib.import_module(match[1])
        inner = [each for each in modules if each.__name__.startswith(f"{match[1]}.")]
        names = getattr(module, "__all__", ())
        twice = [name for name in names if any(getattr(module, name) is getattr(each, name, 0) for each in inner)]
        without = f"   :exclude-members: {', '.join(twice)}\n" if twice else ""
        return f"{match[0]}\n```{{eval-rst}}\n.. automodule:: {match[1]}\n   :members:\n{without}```\n"

    return MODULE.sub(directive, page)


def outside(page: str, folder: Path) -> str:
    """Return a page whose links to code and folders are their names in the repository; the site does not hold them."""

    def plain(match: re.Match[str]) -> str:
        target = (folder / match[2]).resolve()
        if target.is_file() and target.is_relative_to(ROOT / "docs") and target.suffix != ".py":
            return match[0]
        name = str(target.relative_to(ROOT)) if target.exists() else match[2]
        return match[1] if match[1].strip("`/") == name else f"{match[1]} (`{name}`)"

    return LINK.sub(plain, page)


def _read(app: Any, name: str, source: list[str]) -> None:
    text = outside(source[0], (ROOT / "docs" / name).parent)
    if name == "README":
        text = navigation(text)
    elif name == "api":
        text = with_docstrings(text)
    source[0] = text


def _add_index(app: Any, error: Exception | None) -> None:
    """Give the site the name that web servers look for."""
    built = Path(app.outdir)
    if error is None and (built / "README.html").exists():
        (built / "index.html").write_text((built / "README.html").read_text(encoding="utf-8"), encoding="utf-8")


def setup(app: Any) -> None:
    """Register with Sphinx."""
    app.connect("source-read", _read)
    app.connect("build-finished", _add_index)
