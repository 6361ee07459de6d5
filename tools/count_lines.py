"""Count lines of code per package: lines without blank lines, comments and docstrings.

A line counts when it holds part of a statement. A string that is a statement by itself is a docstring, wherever it
stands. Files are those that git tracks or would track; with ``--rev`` the files of a commit.

Run from the root of the repository::

    python tools/count_lines.py                      # the working tree, by top folder
    python tools/count_lines.py --base 11179eb       # and the change since that commit
    python tools/count_lines.py --depth 2 broker     # by package below broker/
"""

import argparse
import ast
import io
import subprocess
import sys
import tarfile
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

AREAS = {
    "product": (
        "auth",
        "broker",
        "cli",
        "client",
        "common",
        "dashboard",
        "namesrv",
        "pipeline",
        "remoting",
        "store",
        "testing",
    ),
    "bench": ("bench", "examples"),
    "tests": ("tests",),
}
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def code_lines(source: bytes) -> int:
    """Return the number of lines of code in a Python file. Raises ``SyntaxError`` where it is none."""
    tree = ast.parse(source)
    lines: set[int] = set()
    for token in tokenize.tokenize(io.BytesIO(source).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    text = source.decode().split("\n")  # ast and tokenize end a line at \n alone
    return sum(1 for line in lines if text[line - 1].strip())


def files_of_tree() -> Iterator[tuple[str, bytes]]:
    """Yield path and content of each Python file of the working tree."""
    listed = _git("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.py").decode()
    for name in filter(None, listed.split("\0")):
        path = Path(name)
        if path.is_file():
            yield name, path.read_bytes()


def files_of_revision(revision: str) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of each Python file of a commit."""
    with tarfile.open(fileobj=io.BytesIO(_git("archive", "--format=tar", revision))) as archive:
        for member in archive:
            if member.isfile() and member.name.endswith(".py"):
                content = archive.extractfile(member)
                assert content is not None
                yield member.name, content.read()


def count(files: Iterator[tuple[str, bytes]], depth: int, within: Sequence[str]) -> Counter[str]:
    """Return lines of code by package: the first ``depth`` folders of a file's path."""
    lines: Counter[str] = Counter()
    for name, source in files:
        folders = name.split("/")[:-1]
        if any(folders[:1] == [top] for tops in AREAS.values() for top in tops) and (
            not within or any(name.startswith(f"{each.rstrip('/')}/") for each in within)
        ):
            lines["/".join(folders[:depth])] += code_lines(source)
    return lines


def report(now: Counter[str], base: Counter[str] | None) -> Iterator[str]:
    """Yield the lines of the table: each package, each area's sum."""
    for area, tops in AREAS.items():
        packages = sorted(name for name in {*now, *(base or ())} if name.split("/")[0] in tops)
        for name in packages:
            yield _row(name, now[name], None if base is None else base[name])
        if packages:
            total = sum(now[name] for name in packages)
            yield _row(f"= {area}", total, None if base is None else sum(base[name] for name in packages)) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("within", nargs="*", metavar="FOLDER", help="only what lies below these folders")
    parser.add_argument("--rev", help="count this commit instead of the working tree")
    parser.add_argument("--base", metavar="REV", help="compare with this commit")
    parser.add_argument("--depth", type=int, default=1, metavar="N", help="folders of a package's name (default 1)")
    options = parser.parse_args(arguments)
    now = count(files_of_revision(options.rev) if options.rev else files_of_tree(), options.depth, options.within)
    base = count(files_of_revision(options.base), options.depth, options.within) if options.base else None
    print("\n".join(report(now, base)))
    return 0


def _row(name: str, lines: int, base: int | None) -> str:
    if base is None:
        return f"{name:<28}{lines:>9,}"
    change = f"{(lines - base) / base:+.1%}" if base else ""
    return f"{name:<28}{base:>9,} ->{lines:>9,} {lines - base:>+8,} {change:>8}"


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], check=True, capture_output=True).stdout


if __name__ == "__main__":
    sys.exit(main())
