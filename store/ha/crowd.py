"""How many connections the HA port serves, and which of them makes room for another.

Lives here: ``makes_room``, without I/O.

A slave says hello at once; a stranger may say nothing for as long as a handshake may take. So strangers that fill the
port keep no slave out: the oldest without a hello goes when another peer connects.
"""

from collections.abc import Collection
from typing import Final, Protocol, TypeVar

from pocketmq.store.ha.transport import host_of

PEERS_MAX: Final = 40
"""Maximum number of connections, including those before their handshake."""
HOST_STRANGERS_MAX: Final = 8
"""Connections of one address before their handshake."""
MADE_ROOM: Final = "it sent no hello, and others want to connect"


class Peer(Protocol):
    """A connection, as this module sees it."""

    @property
    def number(self) -> int:
        """Rises with each connection."""
        ...

    @property
    def peer(self) -> str:
        """The other side's address, host:port."""
        ...

    @property
    def has_said_hello(self) -> bool:
        """Whether it speaks one of the two protocols."""
        ...


PeerT = TypeVar("PeerT", bound=Peer)


def makes_room(peers: Collection[PeerT], newcomer: str) -> PeerT | None:
    """Return the connection to end for a new one of the address ``newcomer``: the oldest before its handshake, of this
    address if it has many, of all if none is free; None if there is room, or none of them may go."""
    strangers = [each for each in peers if not each.has_said_hello]
    host = host_of(newcomer)
    same_host = [each for each in strangers if host_of(each.peer) == host]
    if len(same_host) >= HOST_STRANGERS_MAX:
        strangers = same_host
    elif len(peers) < PEERS_MAX:
        return None
    return min(strangers, key=lambda each: each.number, default=None)
