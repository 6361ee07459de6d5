"""The code on the pages runs as it stands there, against a real broker.

``make test`` runs the first block of each page and the whole of what a newcomer reads; ``make deep`` runs the rest.
"""

import os
import re
from pathlib import Path
from typing import Final

import pytest

from pocketmq.pipeline.java import JavaMissing, use_java
from tests.docs.blocks import ROOT, Block, Session, blocks_of, commands, session
from tests.docs.frames import FRAMES
from tests.profiles import profile

PAGES: Final = sorted(["README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))])
BLOCKS: Final = {page: list(blocks_of(page)) for page in PAGES}
WHOLE: Final = {"README.md", "docs/quickstart.md", "docs/concepts.md", "docs/faq.md"}
"""Pages that ``make test`` runs from top to bottom."""
SOAK: Final = {"docs/spark.md", "docs/spark-sink.md", "docs/spark-jobs.md"}
"""Pages whose blocks start Spark, some seconds each."""
RUNNING: Final = [page for page in PAGES if any(block.runs for block in BLOCKS[page])]
NOT_RUN: Final = {
    "README.md": 3,
    "docs/backup.md": 3,
    "docs/benchmarks.md": 2,
    "docs/compatibility.md": 2,
    "docs/consuming.md": 4,
    "docs/deployment.md": 5,
    "docs/doctor.md": 2,
    "docs/durable-retry.md": 1,
    "docs/flow-control-report.md": 2,
    "docs/grpc.md": 3,
    "docs/message-kinds.md": 1,
    "docs/migration.md": 1,
    "docs/offline.md": 5,
    "docs/pop.md": 2,
    "docs/quickstart.md": 2,
    "docs/security.md": 4,
    "docs/settings.md": 1,
    "docs/spark-jobs.md": 4,
    "docs/spark.md": 4,
    "docs/telemetry.md": 1,
    "docs/upgrade.md": 2,
}
"""Blocks of each page that no test runs; each says why above its fence."""


def to_run(page: str) -> list[Block]:
    runs = [block for block in BLOCKS[page] if block.runs or "file" in block.options]
    return runs if page in WHOLE | SOAK or profile() == "soak" else runs[:1]


def need_java() -> None:
    """Skip the test where Spark has no Java; in CI that is a failure, unless a package registry kept Java back."""
    try:
        use_java()
    except JavaMissing as missing:
        if os.environ.get("CI") and "java" not in os.environ.get("POCKETMQ_MAY_LACK", "").split():
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.soak if page in SOAK else pytest.mark.scaled) for page in RUNNING]
)
def test_the_blocks_of_a_page_run(page: str, tmp_path: Path) -> None:
    if page in SOAK:
        need_java()
    with session(tmp_path) as reader:
        for block in to_run(page):
            reader.run(block)


@pytest.mark.parametrize("page", RUNNING)
def test_the_first_block_of_a_page_is_complete(page: str) -> None:
    """A reader who opens a page can paste its first block; fragments follow it."""
    first = next(block for block in BLOCKS[page] if block.runs)
    assert "in" not in first.options, first


def test_what_is_not_run_is_counted() -> None:
    """A new block that cannot run needs a reason on its page, and is counted here."""
    counted = {page: sum(bool(block.not_run) for block in BLOCKS[page]) for page in PAGES}
    assert {page: count for page, count in counted.items() if count} == NOT_RUN


@pytest.mark.parametrize("page", PAGES)
def test_a_mark_is_of_a_block_that_could_run_and_says_why(page: str) -> None:
    for block in BLOCKS[page]:
        if block.not_run:
            assert block.language in {"python", "console", "sh"}, block
            assert len(block.not_run) > 8, block
            named = re.findall(r"tests/[\w/]+(?:\.py)?", block.not_run)
            assert [path for path in named if not (ROOT / path).exists()] == [], block
        assert set(block.options) <= {"file", "in", "run", "until", "feed"}, block
        assert block.options.get("in") is None or block.options["in"] in FRAMES, block


@pytest.mark.parametrize("page", PAGES)
def test_every_command_stands_in_a_block_that_is_run_or_marked(page: str) -> None:
    """Commands in a block without a language, or with another one, would escape."""
    for block in BLOCKS[page]:
        if block.language in {"", "text"}:
            typed = [line for line in block.text.splitlines() if line.startswith(("$ ", "pip ", "make "))]
            assert not typed, f"{block}: {typed}"


def test_the_commands_of_a_session_are_typed_and_its_output_is_not() -> None:
    """An error that a page shows is an error that the command must give."""
    text = "$ echo a \\\n  b\na b\n$ false\nerror: no\n"
    assert commands(Block("p", 1, "console", text)) == "echo a \\\n  b\nif false\nthen exit 1; fi"


@pytest.mark.parametrize("text", ["raise SystemExit(3)", "import nothing_of_this_name"])
def test_a_block_that_fails_is_an_error(text: str, tmp_path: Path) -> None:
    reader = Session(tmp_path, ("127.0.0.1:1",) * 3)
    with pytest.raises(AssertionError, match="p:1 ended with"):
        reader.run(Block("p", 1, "python", text))
    with pytest.raises(AssertionError, match="did not print"):
        reader.run(Block("p", 1, "python", "print(1)", options={"until": "2"}))
