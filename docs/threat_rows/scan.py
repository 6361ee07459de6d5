"""What the code has that a peer may reach: found by reading the sources, so that nothing new stays without a row.

``codes``: names of request codes. ``decoders``: modules that turn bytes into values. ``tables``: containers that can
grow, as ``module Class.attribute``. ``declared``: the bounds that classes declare with ``@bounded``. ``tasks``:
functions that begin a task, a thread or a pool. ``paths``: modules that create, rename or remove files. ``numbers``:
the numeric fields of request headers.
"""

import ast
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol import PROTOCOL

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = ("auth", "broker", "client", "common", "namesrv", "remoting", "store")

GROWING: Final = frozenset(
    [
        "dict",
        "list",
        "set",
        "deque",
        "OrderedDict",
        "defaultdict",
        "Counter",
        "bytearray",
        "MutableMapping",
        "MutableSequence",
        "MutableSet",
        "Queue",
        "SimpleQueue",
        "LifoQueue",
        "PriorityQueue",
        "BytesIO",
        "StringIO",
        "WeakValueDictionary",
        "WeakKeyDictionary",
        "WeakSet",
        "array",
    ]
)
"""Types that hold more than they were made with."""
DISPLAYS: Final = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)
CACHES: Final = frozenset({"cache", "lru_cache", "cached"})
DECODES: Final = frozenset(
    [
        "decode",
        "from_bytes",
        "unpack",
        "unpack_from",
        "iter_unpack",
        "frombuffer",
        "decompress",
        "decompressobj",
        "loads",
        "Decoder",
        "fromhex",
        "a2b_hex",
        "b64decode",
        "literal_eval",
        "eval",
    ]
)
"""Calls that make values of bytes or of a peer's text; as ``x.decode(...)``, as a bare name, and as a base."""
BEGINS: Final = frozenset(
    [
        "create_task",
        "ensure_future",
        "Thread",
        "ThreadPoolExecutor",
        "ProcessPoolExecutor",
        "Process",
        "run_in_executor",
        "to_thread",
        "keep",
        "start_server",
        "start_unix_server",
        "create_server",
        "run_coroutine_threadsafe",
        "start_new_thread",
        "Timer",
        "call_later",
        "call_at",
        "Popen",
    ]
)
"""Calls that begin work; ``….start(name, step)`` of a runner as well."""
WRITES: Final = frozenset(
    [
        "remove_tree",
        "rmtree",
        "unlink",
        "remove_file",
        "rename",
        "replace",
        "makedirs",
        "mkdir",
        "make_directory",
        "make_directories",
        "write_file",
        "write_atomic",
        "truncate",
        "open_file",
        "create_file",
        "symlink",
        "link",
        "rmdir",
        "open",
    ]
)
"""Calls that create, rename or remove what has a name."""


@cache
def sources() -> dict[str, ast.Module]:
    """Return each module of the packages by its path."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


@cache
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """Return every node of a module; each rule asks for them again."""
    return tuple(ast.walk(tree))


def forget() -> None:
    """Drop the syntax trees: a million objects, among which each later collection of garbage would search."""
    sources.cache_clear()
    nodes.cache_clear()


def last_name(node: ast.AST | None) -> str:
    """Return the last part of a dotted name, of the head of a subscript, or of what is called."""
    if isinstance(node, ast.Subscript):
        return last_name(node.value)
    if isinstance(node, ast.Call):
        return last_name(node.func)
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def grows(annotation: ast.expr | None) -> bool:
    """Say whether an annotation is of a growing type, behind Final, ClassVar, Annotated, quotes and unions."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return grows(ast.parse(annotation.value, mode="eval").body)
    if isinstance(annotation, ast.BinOp):
        return grows(annotation.left) or grows(annotation.right)
    if isinstance(annotation, ast.Subscript) and last_name(annotation) in {
        "Final",
        "ClassVar",
        "Annotated",
        "Optional",
    }:
        inner = annotation.slice
        return grows(inner.elts[0] if isinstance(inner, ast.Tuple) else inner)
    return last_name(annotation) in GROWING


def makes(value: ast.expr | None) -> bool:
    """Say whether an expression makes a growing container."""
    if isinstance(value, ast.IfExp):
        return makes(value.body) or makes(value.orelse)
    if isinstance(value, ast.BinOp | ast.BoolOp):
        parts = value.values if isinstance(value, ast.BoolOp) else [value.left, value.right]
        return any(makes(part) for part in parts)
    if isinstance(value, ast.Call):
        factories = [word.value for word in value.keywords if word.arg == "default_factory"]
        inside = [each.body if isinstance(each, ast.Lambda) else each for each in factories]
        return last_name(value) in GROWING or any(last_name(each) in GROWING or makes(each) for each in inside)
    return isinstance(value, DISPLAYS)


def is_value(owner: ast.ClassDef) -> bool:
    """Say whether a class is a frozen value, or only a shape: what it holds was made before it."""
    if any(last_name(base) in {"NamedTuple", "Protocol", "TypedDict"} for base in owner.bases):
        return True
    words = [
        *owner.keywords,
        *(word for each in owner.decorator_list if isinstance(each, ast.Call) for word in each.keywords),
    ]
    return any(word.arg == "frozen" and getattr(word.value, "value", False) is True for word in words)


def _attributes(owner: ast.ClassDef) -> Iterator[str]:
    """Yield the attributes of a class that can grow, wherever it sets them."""
    for node in owner.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not is_value(owner):
            if grows(node.annotation) or makes(node.value):
                yield node.target.id
        elif isinstance(node, ast.Assign) and makes(node.value):
            yield from (
                target.id for target in node.targets if isinstance(target, ast.Name) and target.id != "__slots__"
            )
    for method in owner.body:
        if not isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        arguments = [*method.args.posonlyargs, *method.args.args, *method.args.kwonlyargs]
        given = {each.arg for each in arguments if grows(each.annotation)}
        for inside in ast.walk(method):
            targets: list[ast.expr]
            if isinstance(inside, ast.AnnAssign):
                targets, value, is_growing = [inside.target], inside.value, grows(inside.annotation)
            elif isinstance(inside, ast.Assign):
                targets, value, is_growing = inside.targets, inside.value, False
            else:
                continue
            if not (is_growing or makes(value) or (isinstance(value, ast.Name) and value.id in given)):
                continue
            for target in targets:
                if isinstance(target, ast.Attribute) and last_name(target.value) == "self":
                    yield target.attr


@cache
def tables() -> set[str]:
    """Return every container of a class or a module that can grow, and every cache of a function."""
    found: set[str] = set()
    for path, tree in sources().items():
        for node in nodes(tree):
            if isinstance(node, ast.ClassDef):
                found.update(f"{path} {node.name}.{name}" for name in _attributes(node))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_cached(node):
                found.add(f"{path} {node.name}()")
        for node in tree.body:
            if isinstance(node, ast.Assign) and makes(node.value):
                found.update(
                    f"{path} {target.id}"
                    for target in node.targets
                    if isinstance(target, ast.Name) and target.id != "__all__"
                )
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and _may_grow(node):
                found.add(f"{path} {node.target.id}")
    return found


def _is_cached(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(last_name(each) in CACHES for each in function.decorator_list)


@dataclass(frozen=True, slots=True)
class Declared:
    """A ``@bounded`` of common/bounds.py. ``owner``: ``path Class``; ``setting``: what raises it, "" where it is
    fixed."""

    name: str
    owner: str
    setting: str


@cache
def declared() -> tuple[Declared, ...]:
    """Return every bound that a class declares."""
    return tuple(each for path, tree in sources().items() for each in _declarations(path, tree))


def _declarations(path: str, tree: ast.AST) -> Iterator[Declared]:
    for owner in (node for node in nodes(tree) if isinstance(node, ast.ClassDef)):
        for call in owner.decorator_list:
            if isinstance(call, ast.Call) and last_name(call.func) == "bounded":
                settings = [ast.literal_eval(word.value) for word in call.keywords if word.arg == "setting"]
                yield Declared(ast.literal_eval(call.args[0]), f"{path} {owner.name}", "".join(settings))


def _may_grow(node: ast.AnnAssign) -> bool:
    return last_name(node.annotation) not in {"Final", "TypeAlias"} and (grows(node.annotation) or makes(node.value))


def _calls(names: frozenset[str], tree: ast.AST) -> Iterator[ast.Call]:
    for node in nodes(tree):
        if isinstance(node, ast.Call) and last_name(node.func) in names:
            yield node


@cache
def decoders() -> set[str]:
    """Return the modules that make values of bytes."""
    return {path for path, tree in sources().items() if next(_calls(DECODES, tree), None) is not None}


@cache
def paths() -> set[str]:
    """Return the modules that create, rename or remove files."""
    return {path for path, tree in sources().items() if any(_is_write(call) for call in _calls(WRITES, tree))}


def _is_write(call: ast.Call) -> bool:
    """Leave out what has such a name and is none: ``text.replace(a, b)``, ``dataclasses.replace``, ``queue.open()``."""
    name = last_name(call.func)
    if name == "replace":
        return (len(call.args) == 1 and not call.keywords) or last_name(getattr(call.func, "value", None)) in {
            "os",
            "file_system",
            "_file_system",
        }
    return name != "open" or bool(call.args)


@cache
def tasks() -> set[str]:
    """Return the functions that begin a task, a thread, a pool or a timer, as ``module function``."""
    found: set[str] = set()
    for path, tree in sources().items():
        for scope in [node for node in nodes(tree) if isinstance(node, ast.ClassDef | ast.Module)]:
            prefix = f"{scope.name}." if isinstance(scope, ast.ClassDef) else ""
            for function in scope.body:
                if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and _begins(function):
                    found.add(f"{path} {prefix}{function.name}")
    return found


def _begins(function: ast.AST) -> bool:
    for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
        name = last_name(call.func)
        if name in BEGINS or (name == "start" and len(call.args) >= 2) or (name == "run_off_loop"):
            return True
    return False


@cache
def clocks() -> set[str]:
    """Return the functions that ask for the wall time, as ``module function``; also those that only pass the method."""
    found: set[str] = set()
    for path, tree in sources().items():
        for scope in [node for node in nodes(tree) if isinstance(node, ast.ClassDef | ast.Module)]:
            prefix = f"{scope.name}." if isinstance(scope, ast.ClassDef) else ""
            for part in scope.body:
                if isinstance(part, ast.ClassDef):
                    continue
                if any(_asks_wall_time(node) for node in ast.walk(part)):
                    found.add(f"{path} {prefix}{getattr(part, 'name', '')}".strip())
    return found


def _asks_wall_time(node: ast.AST) -> bool:
    if not isinstance(node, ast.Attribute):
        return False
    if node.attr in ("time", "time_ns"):
        return isinstance(node.value, ast.Name) and node.value.id == "time"
    if node.attr in ("now", "utcnow", "today"):
        return last_name(node.value) in ("datetime", "date")
    # SteadyTime has the same method: what is called time is one
    return node.attr == "now_ms" and last_name(node.value) not in ("time", "_time", "_steady", "staged_log")


def codes() -> set[str]:
    """Return the names of all request codes."""
    return {code.name for code in RequestCode}


@cache
def numbers() -> set[str]:
    """Return the names of the numeric fields in the headers of requests."""
    found: set[str] = set()
    for spec in PROTOCOL.values():
        if spec.request is not None:
            hints = typing.get_type_hints(spec.request, include_extras=False)
            found.update(name for name in spec.request.__struct_fields__ if _has_number(hints[name]))
    return found


def _has_number(kind: Any) -> bool:
    return kind in (int, float) or any(_has_number(part) for part in typing.get_args(kind))
