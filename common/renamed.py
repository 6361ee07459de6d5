"""Former names of public Python objects: they work for one version, with a warning.

Lives here: ``renamed``, which makes a module's ``__getattr__`` (PEP 562).
"""

import importlib
import warnings
from collections.abc import Callable, Mapping


def renamed(module: str, names: Mapping[str, str]) -> Callable[[str], object]:
    """Return a ``__getattr__`` for ``module`` that knows ``names``, each former name with its present one.

    It warns of each use with ``DeprecationWarning``. Other names raise ``AttributeError``, as without it. Assign it
    under ``if not TYPE_CHECKING``: a type checker must go on to report names that the module lacks.
    """

    def attribute(name: str) -> object:
        present = names.get(name)
        if present is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{module}.{name} is now {present}", DeprecationWarning, stacklevel=2)
        value: object = getattr(importlib.import_module(module), present)
        return value

    return attribute
