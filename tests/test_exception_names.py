"""Each exception of the product has a name of its own."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
LAYERS = (
    "auth",
    "bench",
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
)
BASES = {"Exception", "RuntimeError", "ValueError", "OSError", "LookupError", "KeyError", "TimeoutError"}


def test_no_two_modules_define_exceptions_of_one_name() -> None:
    """A traceback, a log line and an ``except`` must name one class only."""
    defined: list[tuple[str, set[str], str]] = []
    for file in sorted(file for layer in LAYERS for file in (ROOT / layer).rglob("*.py")):
        source = file.read_text()
        for node in ast.walk(ast.parse(source)) if re.search(r"class \w+[(\[]", source) else ():
            if isinstance(node, ast.ClassDef):
                bases = {ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases}
                defined.append((node.name, bases, str(file.relative_to(ROOT))))
    exceptions = set(BASES)
    while grown := {name for name, bases, _ in defined if bases & exceptions} - exceptions:
        exceptions |= grown
    paths: dict[str, list[str]] = {}
    for name, _, path in defined:
        if name in exceptions:
            paths.setdefault(name, []).append(path)
    assert len(paths) > 100  # the search must find them
    assert {name: found for name, found in paths.items() if len(found) > 1} == {}
