"""What the repository refers to exists: pages, headings, anchors; and the pages can be read in a narrow window."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
WIDTH: Final = 120
PAGES: Final = sorted(str(path.relative_to(ROOT)) for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
SOURCES: Final = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("*.md", "*.toml", "Makefile", ".ci/*", "*/**/*.py", "*/**/*.md", "*/**/*.toml", "*/**/*.java")
    for path in ROOT.glob(pattern)
    if path.is_file() and path != Path(__file__) and not path.relative_to(ROOT).parts[0].startswith((".venv", "build"))
    if not path.is_relative_to(ROOT / "src")  # links to the packages
)

DANGLING: Final = re.compile(
    r"§ ?\d"
    r"|\bfacts? \d|\bfact sheet"
    r"|\bissues? #?\d|\b(?:a )?later issues?\b|\bnext issue\b"
    r"|\bincidents? \d"
    r"|\bdesign\.md\b|\bdesign document\b"
    r"|\bfindings? #?[A-Z]?\d",
    re.IGNORECASE,
)
"""Citations of papers that are not in the repository: fact sheets, designs, issues, numbered incidents and findings."""
PAGE_NAMED: Final = re.compile(r'\b(docs/[\w/-]+\.md)[`)]*(?:, \\?"([^"\\]{1,80})\\?")?')
LINK: Final = re.compile(r"\]\(([^)\s]*)\)")


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def prose(page: str) -> Iterator[str]:
    """Yield the lines outside of code blocks."""
    fenced = False
    for line in page.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield line


@cache
def headings(name: str) -> frozenset[str]:
    return frozenset(line.lstrip("#").strip() for line in prose(text_of(name)) if line.startswith("#"))


def anchor(heading: str) -> str:
    """Return the anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@cache
def links(name: str) -> tuple[str, ...]:
    """Return the targets of the links of a page that are no addresses."""
    found = LINK.findall("\n".join(prose(text_of(name))))
    return tuple(target for target in found if not re.match(r"[a-z]+:", target))


def dangling(text: str) -> list[str]:
    return [match.group() for match in DANGLING.finditer(text)]


def missing_pages(text: str) -> list[str]:
    """Return the pages and headings that a text names and that do not exist."""
    joined = re.sub(r"\s*\n\s*(?:# ?)?", " ", text)
    return [
        f"{name}, {heading!r}" if heading else name
        for name, heading in PAGE_NAMED.findall(joined)
        if not (ROOT / name).is_file() or (heading and heading not in headings(name))
    ]


def test_the_sources_are_found() -> None:
    """Else all that follows says nothing."""
    assert {"README.md", "Makefile", "common/errors.py", "docs/rocketmq.md", "tests/docs/test_tables.py"} <= {*SOURCES}


def test_citations_can_be_opened() -> None:
    """A comment cites a page of docs/ with its heading, or RocketMQ's class and version."""
    assert {name: found for name in SOURCES if (found := dangling(text_of(name)))} == {}


def test_the_pages_that_are_named_exist_with_their_headings() -> None:
    assert {name: found for name in SOURCES if (found := missing_pages(text_of(name)))} == {}


@pytest.mark.parametrize(
    "citation", ["(facts §3.1)", "Facts 3.16", "see issue 5", "Incident 2", "design §5", "finding A1"]
)
def test_a_dangling_citation_is_found(citation: str) -> None:
    assert dangling(f"The rule is RocketMQ's, {citation}.")


def test_a_missing_page_and_a_missing_heading_are_found() -> None:
    missing = missing_pages(
        'See docs/nowhere.md, and (docs/rocketmq.md,\n    # "No such heading"); docs/rocketmq.md, "Frame".'
    )
    assert missing == ["docs/nowhere.md", "docs/rocketmq.md, 'No such heading'"]


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    """To a file, and to a heading of it."""
    wrong = []
    for target in links(name):
        path, _, fragment = target.partition("#")
        file = (ROOT / name).parent / path if path else ROOT / name
        if not file.exists():
            wrong.append(target)
        elif fragment and fragment not in {anchor(each) for each in headings(str(file.resolve().relative_to(ROOT)))}:
            wrong.append(target)
    assert wrong == []


def test_each_page_is_reached_from_the_readme() -> None:
    seen, waiting = set(), ["README.md"]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for target in links(name):
            file = ((ROOT / name).parent / target.partition("#")[0]).resolve()
            if file.is_dir():
                waiting += [str(path.relative_to(ROOT)) for path in file.glob("*.md")]
            elif file.suffix == ".md":
                waiting.append(str(file.relative_to(ROOT)))
    assert {*PAGES} - seen == set()
