"""The package's description, and its pages: what a reader needs who has no repository beside him.

Everything else about the package is in pyproject.toml. A package index shows README.md alone, where links to pages of
the repository lead nowhere: there they become their text, and a line says where the pages are. A wheel puts them into
``share/doc/pocketmq`` of the environment, in the order of the repository, so that their links among each other work.
"""

import re
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
LINK_INTO_REPOSITORY = re.compile(r"\[([^\]]+)\]\((?![a-z]+:)[^)\s]*\)")
PICTURE = re.compile(r"^!\[[^\]]*\]\((?![a-z]+:)[^)\s]*\)\n\n", re.MULTILINE)
WHERE = (
    "The pages and examples that this text names are in the source distribution, and in `share/doc/pocketmq` of the\n"
    "environment that PocketMQ is installed into.\n\n"
)
SECOND_HEADING = re.compile(r"^## ", re.MULTILINE)
PAGES = "share/doc/pocketmq"
SUFFIXES = {".md", ".svg", ".png", ".py", ".ini", ".conf"}


def description() -> str:
    """Return README.md for an index page."""
    text = PICTURE.sub("", (ROOT / "README.md").read_text(encoding="utf-8"))
    text = LINK_INTO_REPOSITORY.sub(r"\1", text)
    return SECOND_HEADING.sub(lambda heading: WHERE + heading[0], text, count=1)


def pages() -> list[tuple[str, list[str]]]:
    """Return folder → files of README, change log, documentation and examples."""
    found = {PAGES: ["README.md", "CHANGELOG.md"]}
    paths = [*(ROOT / "docs").rglob("*"), *(ROOT / "examples").rglob("*")]
    for path in sorted(path.relative_to(ROOT) for path in paths if path.is_file()):
        is_tool = path.parts[0] == "docs" and path.suffix == ".py"  # makes the generated tables
        if path.suffix in SUFFIXES and not is_tool and "__pycache__" not in path.parts:
            found.setdefault(f"{PAGES}/{path.parent.as_posix()}", []).append(path.as_posix())
    return sorted(found.items())


setup(long_description=description(), long_description_content_type="text/markdown", data_files=pages())
