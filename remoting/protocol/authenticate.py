"""AUTHENTICATE (30002): a client proves on a native connection who it is, once for all its requests.

The server's announcement carries the nonce that the proof answers; ``remoting.security.proof`` has the bytes. The
connection itself answers, before any table of handlers. A wrong proof is NO_PERMISSION (16), and the connection closes.

Access, our decision: anyone, because nobody has proved anything before it.
"""

from typing import Final

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.access import ANYONE
from pocketmq.remoting.protocol.spec import Header, Pool, Spec


class AuthenticateRequestHeader(Header, frozen=True):
    """AUTHENTICATE."""

    user: str
    nonce: str
    """The client's nonce: 16 to 64 characters."""
    proof: str


class AuthenticateResponseHeader(Header, frozen=True):
    """The answer to AUTHENTICATE."""

    user: str
    """The user that the connection now has."""
    proof: str
    """The server's proof."""


_R = RequestCode
SPECS: Final = (Spec(_R.AUTHENTICATE, Pool.CONNECTION, ANYONE, AuthenticateRequestHeader, AuthenticateResponseHeader),)
