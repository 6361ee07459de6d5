"""The keys with which a client proves who it is.

Lives here: ``Credentials``.
"""

from dataclasses import dataclass, field
from typing import Final

from pocketmq.remoting.errors import CredentialsIllegal

KEY_BYTES_MAX: Final = 256
"""Longest access key, secret key or token. The limit is ours: each request of RocketMQ's protocol carries them."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user's name and secret, as RocketMQ's ``SessionCredentials``. The secret never appears in ``repr``.

    ``access_key`` is the name of the user, ``secret_key`` the user's password. ``security_token`` goes with each
    request to RocketMQ, which hands it to its own plug-ins; PocketMQ's servers do not use it.
    Raise ``CredentialsIllegal`` for keys that are empty, too long, or contain control characters.
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        for name, value in (
            ("access_key", self.access_key),
            ("secret_key", self.secret_key),
            ("security_token", self.security_token),
        ):
            if not isinstance(value, str):
                raise CredentialsIllegal("credentials refused", why=f"{name} is {type(value).__name__}, not text")
            if not value and name != "security_token":
                raise CredentialsIllegal("credentials refused", why=f"{name} is empty", hint="give both keys, or none")
            if not value.isprintable():
                raise CredentialsIllegal(
                    "credentials refused",
                    why=f"{name} contains a control character",
                    hint="is there a line end at the end of a file that was read?",
                )
            if len(value.encode(errors="replace")) > KEY_BYTES_MAX:
                raise CredentialsIllegal("credentials refused", why=f"{name} is longer than {KEY_BYTES_MAX} bytes")
