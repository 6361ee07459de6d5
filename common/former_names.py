"""Former names of public classes, arguments, attributes and settings: they work for one more version, with a warning.

Lives here: ``renamed_objects``, ``renamed_arguments``, ``renamed_fields``, ``former_attribute``, ``warn_renamed``.
"""

import functools
import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
ResultT = TypeVar("ResultT")
ClassT = TypeVar("ClassT", bound=type)


def warn_renamed(former: str, name: str, *, stacklevel: int = 1) -> None:
    """Emit the ``DeprecationWarning`` of a former name. ``stacklevel``: 1 is the caller of this function."""
    warnings.warn(f"{former} is now {name}", DeprecationWarning, stacklevel=stacklevel + 1)


def renamed_objects(module: str, names: Mapping[str, str]) -> Callable[[str], object]:
    """Return a ``__getattr__`` for ``module`` that knows ``names``, each former name with its present one.

    It warns of each use with ``DeprecationWarning``. Other names raise ``AttributeError``, as without it. Assign it
    under ``if not TYPE_CHECKING``: a type checker must go on to report names that the module lacks.
    """

    def attribute(name: str) -> object:
        present = names.get(name)
        if present is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warn_renamed(f"{module}.{name}", present, stacklevel=2)
        value: object = getattr(importlib.import_module(module), present)
        return value

    return attribute


def renamed_arguments(**names: str) -> Callable[[Callable[P, ResultT]], Callable[P, ResultT]]:
    """Let a function take keyword arguments under former names: former name → name.

    >>> @renamed_arguments(sequence="version")
    ... def commit(version: int) -> int:
    ...     return version
    >>> with warnings.catch_warnings(record=True) as seen:
    ...     commit(sequence=7), str(seen[0].message)
    (7, 'argument sequence of commit is now version')
    """

    def wrap(function: Callable[P, ResultT]) -> Callable[P, ResultT]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> ResultT:
            for former in names.keys() & kwargs.keys():
                name = names[former]
                if name in kwargs:
                    raise TypeError(f"{function.__qualname__}() got both {former!r} and {name!r}, its new name")
                warn_renamed(f"argument {former} of {function.__qualname__}", name, stacklevel=2)
                kwargs[name] = kwargs.pop(former)
            return function(*args, **kwargs)

        return call

    return wrap


def renamed_fields(**names: str) -> Callable[[ClassT], ClassT]:
    """Let a dataclass take and show fields under former names: former name → name. Goes above ``@dataclass``."""

    def wrap(kind: ClassT) -> ClassT:
        changes: Any = kind
        changes.__init__ = renamed_arguments(**names)(changes.__init__)
        for former, name in names.items():
            setattr(kind, former, former_attribute(kind.__name__, former, name))
        return kind

    return wrap


def former_attribute(owner: str, former: str, name: str) -> property:
    """Return a property that reads an attribute under its former name."""

    def read(self: object) -> Any:
        warn_renamed(f"{owner}.{former}", name, stacklevel=2)
        return getattr(self, name)

    return property(read, doc=f"The former name of ``{name}``.")
