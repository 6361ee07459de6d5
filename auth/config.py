"""Settings of access control, the same for brokers and name servers.

Lives here: ``AuthConfig``.
"""

import msgspec

from pocketmq.common.errors import ConfigError
from pocketmq.common.settings import Secret
from pocketmq.remoting.errors import CredentialsIllegal
from pocketmq.remoting.security.credentials import Credentials


class AuthConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may ask a broker or a name server for something. The names are RocketMQ 5's, in snake case."""

    open: bool = False
    """Ours: serve beyond loopback although nobody has to authenticate; without it such a start is refused."""
    authentication_enabled: bool = False
    """Whether each request must come from a known user: a proof once a connection (PocketMQ's clients), or a signature
    with each request (RocketMQ's)."""
    authorization_enabled: bool = False
    """Whether policies decide what a user may do; needs ``authentication_enabled``. Without it each known user may do
    everything."""
    init_username: str = ""
    """Name of the super user that a start makes while there is no user at all."""
    init_password: Secret = ""
    """Password of that user, at least 7 characters."""
    inner_access_key: str = ""
    """The user as which brokers and name servers talk to each other; a super user, and the same on all of them."""
    inner_secret_key: Secret = ""
    """Secret of that user."""
    authentication_whitelist: str = ""
    """Request codes, with commas between them, that anybody may send."""
    authorization_whitelist: str = ""
    """Request codes, with commas between them, that each known user may send."""
    auth_file: str = ""
    """File of users and policies; empty: ``config/auth.json`` in the store of a broker, and no file for a name server,
    which then knows only the two users above."""

    def __post_init__(self) -> None:
        if self.authorization_enabled and not self.authentication_enabled:
            raise ConfigError(
                "bad setting",
                why="auth.authorization_enabled=true without auth.authentication_enabled",
                hint="policies need users: enable both",
            )
        for setting, name, secret in (
            ("init_username", self.init_username, self.init_password),
            ("inner_access_key", self.inner_access_key, self.inner_secret_key),
        ):
            if name or secret:
                try:
                    Credentials(name, secret)
                except CredentialsIllegal as error:
                    raise ConfigError("bad setting", why=f"auth.{setting} and its secret: {error.why}") from error
        for setting in ("authentication_whitelist", "authorization_whitelist"):
            try:
                codes_of(getattr(self, setting))
            except ValueError:
                why = f"auth.{setting}={getattr(self, setting)!r}"
                raise ConfigError("bad setting", why=why, hint="request codes, like 105,106") from None

    @property
    def inner(self) -> Credentials | None:
        """The keys for requests to other servers of the cluster."""
        return Credentials(self.inner_access_key, self.inner_secret_key) if self.inner_access_key else None


def codes_of(text: str) -> frozenset[int]:
    """Return the request codes of a white list. Raise ``ValueError``."""
    return frozenset(int(part) for part in text.split(",") if part.strip())
