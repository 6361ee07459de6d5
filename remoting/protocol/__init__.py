"""The protocol: for each request code its headers, its bodies, the permission that it needs, and its server.

A family is a module: its header structs, its bodies, and ``SPECS``, one row a request code. In order: ``spec`` defines
a row, ``access`` a permission, ``body`` and ``lenient`` write and read JSON. Then
``hello`` and ``authenticate``, which open a connection, ``client``, ``send``, ``pull``, ``pop``, ``offset``, ``topic``,
``group``, ``relay`` (running consumers), ``lock``, ``transaction``, ``staged``, ``broker``, ``acl``,
``namesrv``, ``ha``.
``PROTOCOL`` holds all rows.

A new request code is a constant in ``remoting/codes.py``, a row here, and a handler. ``docs/protocol.md`` and
``docs/compatibility.md`` take their tables from the rows. Not here: frames, the bytes of headers (``codec*``), and the
serving of requests.
"""

from collections.abc import Mapping
from typing import Final

from pocketmq.remoting.protocol import (
    acl,
    authenticate,
    broker,
    client,
    group,
    ha,
    hello,
    lock,
    namesrv,
    offset,
    pop,
    pull,
    relay,
    send,
    staged,
    topic,
    transaction,
)
from pocketmq.remoting.protocol.spec import Pool, Spec

FAMILIES: Final[Mapping[str, tuple[Spec, ...]]] = {
    "hello": hello.SPECS,
    "authenticate": authenticate.SPECS,
    "client": client.SPECS,
    "send": send.SPECS,
    "pull": pull.SPECS,
    "pop": pop.SPECS,
    "offset": offset.SPECS,
    "transaction": transaction.SPECS,
    "staged": staged.SPECS,
    "lock": lock.SPECS,
    "topic": topic.SPECS,
    "group": group.SPECS,
    "relay": relay.SPECS,
    "broker": broker.SPECS,
    "acl": acl.SPECS,
    "namesrv": namesrv.SPECS,
    "ha": ha.SPECS,
}
"""The rows of each family, in the order of a message's way through a cluster."""
PROTOCOL: Final[Mapping[int, Spec]] = {int(spec.code): spec for specs in FAMILIES.values() for spec in specs}
"""The row of each request code. A code that is missing here is unknown: its requests have no typed header."""


def codes_of(pool: Pool) -> list[int]:
    """Return the request codes that ``pool`` serves."""
    return [code for code, spec in PROTOCOL.items() if spec.pool is pool]
