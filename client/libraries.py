"""The optional libraries behind the stores of ``durable`` and ``idempotence``, and their errors.

Lives here: ``library`` (import one, or name the extra that brings it) and ``translated``.
"""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pocketmq.common.errors import ConfigError, PocketMQError


def library(module: str, extra: str, what: str) -> Any:
    """Return an imported module of an optional library; raise ``ConfigError`` (``what``) where it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise ConfigError(what, why=f"{name} is not installed", hint=f"pip install 'pocketmq[{extra}]'") from error


@contextmanager
def translated(
    kinds: tuple[type[Exception], ...], translate: Callable[[str, Exception], PocketMQError], what: str
) -> Iterator[None]:
    """Raise ``translate(what, error)`` for an error of a library; let the project's own errors pass."""
    try:
        yield
    except PocketMQError:
        raise
    except kinds as error:
        raise translate(what, error) from error
