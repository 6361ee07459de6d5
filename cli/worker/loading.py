"""``MODULE:CONSUMER``: imports a module of the application and finds the consumers in it.

Lives here: ``load_consumers``.
"""

import importlib
import os
import sys
import traceback
from typing import Any

from pocketmq.client import blocking
from pocketmq.client.push.push_consumer import PushConsumer
from pocketmq.common.errors import ConfigError

DEFAULT_NAME = "consumer"
WHAT = "worker refused"


def load_consumers(target: str) -> list[PushConsumer] | blocking.PushConsumer:
    """Return the consumers that ``module:name`` names; modules in the current directory are found, too.

    The name may be an attribute (``jobs.consumer``), and be a consumer, a list of them, or a function that returns
    one of these; without a name it is ``consumer``. A consumer of ``pocketmq.client.blocking`` is returned alone.
    Raise ``ConfigError`` for anything else. What a module raises at its import is printed with its traceback.
    """
    module_name, _, name = target.partition(":")
    name = name or DEFAULT_NAME
    if not module_name:
        raise ConfigError(WHAT, why=repr(target), hint="write MODULE:CONSUMER, for example shop.orders:consumer")
    found = _attribute(_import(module_name), module_name, name)
    if callable(found):
        found = found()
    consumers = list(found) if isinstance(found, list | tuple) else [found]
    for consumer in consumers:
        if not isinstance(consumer, PushConsumer | blocking.PushConsumer):
            kind = type(consumer).__name__
            raise ConfigError(WHAT, why=f"{target} is a {kind}, no PushConsumer", hint="name the consumer itself")
    if not consumers:
        raise ConfigError(WHAT, why=f"{target} is empty", hint="name at least one PushConsumer")
    if not any(isinstance(consumer, blocking.PushConsumer) for consumer in consumers):
        return consumers
    if len(consumers) > 1:
        raise ConfigError(
            WHAT,
            why=f"{target} has several consumers, and one of them is of pocketmq.client.blocking",
            hint="start a worker for it alone, or use pocketmq.client.PushConsumer, which runs plain handlers, too",
        )
    only: blocking.PushConsumer = consumers[0]
    return only


def _import(module_name: str) -> Any:
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            hint = "start it in the directory of the application, or set PYTHONPATH"
            raise ConfigError(WHAT, why=f"there is no module {error.name!r} here", hint=hint) from None
        failure: BaseException = error
    except Exception as error:
        failure = error
    traceback.print_exception(failure)
    raise ConfigError(WHAT, why=f"{module_name} cannot be imported: {failure!r}", hint="see the traceback above")


def _attribute(module: Any, module_name: str, name: str) -> Any:
    found = module
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            there = [
                key
                for key, value in sorted(vars(module).items())
                if isinstance(value, PushConsumer | blocking.PushConsumer)
            ]
            hint = f"it has {', '.join(there)}" if there else "no PushConsumer is at the top level of the module"
            raise ConfigError(WHAT, why=f"{module_name} has no {name!r}", hint=hint) from None
    return found
