"""What the shell completes after the names of commands and options: topics, groups, words.

Lives here: the callbacks that typer calls while the user holds the TAB key. A cluster that does not answer within
``PATIENCE_S`` completes nothing: a completion never fails and never prints.
"""

import os
import re
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final

import typer

from pocketmq.cli.connection import connect_with, given

if TYPE_CHECKING:
    from pocketmq.client.admin.admin import Admin

PATIENCE_S: Final = 1.0
"""How long a shell may wait for name servers and brokers."""
Found = list[str]
_PLAIN: Final = re.compile(r"[\w%.+-]+", re.ASCII)
"""Names come from peers and end in a command line; scripts of completion even evaluate them. RocketMQ allows ``|``."""


def topics(context: typer.Context, incomplete: str) -> Found:
    """Return the users' topics, or all that begin with what is typed if it begins like a topic of the system."""

    async def ask(admin: "Admin") -> Iterable[str]:
        from pocketmq.common.topics import is_system_topic

        found = await admin.topics()
        if incomplete.startswith(("%", "RMQ", "SCHEDULE", "TRANS")):
            return found
        clusters = (await admin.cluster_info()).cluster_addr_table
        own = {*await admin.masters(), *clusters, *(f"{cluster}_REPLY_TOPIC" for cluster in clusters)}
        return [name for name in found if name not in own and "%" not in name and not is_system_topic(name)]

    return beginning_with(_asked(context, ask), incomplete)


def groups(context: typer.Context, incomplete: str) -> Found:
    """Return the users' consumer groups, those of ``pocketmq group list``; all if it begins like one of the system."""

    async def ask(admin: "Admin") -> Iterable[str]:
        from pocketmq.cli.own_groups import is_own_group

        found = await admin.groups()
        return found if incomplete.startswith("CID_") else [name for name in found if not is_own_group(name)]

    return beginning_with(_asked(context, ask), incomplete)


def words(*choices: str) -> Callable[[str], Found]:
    """Return the completion of an option that takes one of a few words."""

    def complete(incomplete: str) -> Found:
        return beginning_with(choices, incomplete)

    return complete


def beginning_with(names: Iterable[str], incomplete: str) -> Found:
    """Return the names that begin with what is typed, in order; none with a character that a shell would act on."""
    return sorted(name for name in names if name.startswith(incomplete) and _PLAIN.fullmatch(name))


def _asked(context: typer.Context, ask: "Callable[[Admin], Coroutine[Any, Any, Iterable[str]]]") -> Iterable[str]:
    """Return what a cluster answers, nothing if it does not; the log of the client stays silent."""
    import asyncio
    import logging

    from pocketmq.client.admin.admin import Admin
    from pocketmq.common.errors import PocketMQError

    logging.disable()

    async def answer() -> Iterable[str]:
        namesrv = connect_with(context.find_root().params, os.environ)
        namesrv = context.params.get("namesrv") or namesrv or "127.0.0.1:9876"
        async with asyncio.timeout(PATIENCE_S), Admin(namesrv, **given()) as admin:
            return await ask(admin)

    try:
        return asyncio.run(answer())
    except (PocketMQError, OSError):  # TimeoutError is an OSError
        return []
    finally:
        logging.disable(logging.NOTSET)
