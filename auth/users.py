"""Users, as RocketMQ 5 has them.

Lives here: ``User``, ``UserType``, ``UserStatus``, the rules for names and passwords.
"""

import enum
import re
from typing import Final

import msgspec

from pocketmq.auth.errors import AuthIllegal
from pocketmq.remoting.limits.user_limits import NO_LIMITS, UserLimits

NAME_CHARACTERS_MAX: Final = 64
PASSWORD_CHARACTERS_MIN: Final = 7
"""Shortest secret, as in RocketMQ 4.9 (``AclConstants.SECRET_KEY_MIN_LENGTH``)."""
PASSWORD_CHARACTERS_MAX: Final = 256
_NAME: Final = re.compile(r"[A-Za-z0-9_.@-]+")


class UserType(enum.Enum):
    """A super user may do everything; a normal one what policies allow."""

    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(enum.Enum):
    """A disabled user may do nothing, at once and on open connections too."""

    ENABLE = "enable"
    DISABLE = "disable"


class User(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One user. ``password`` is kept as it is, for RocketMQ's signatures are keyed with it; ``repr`` leaves it out."""

    username: str
    password: str
    user_type: UserType = UserType.NORMAL
    user_status: UserStatus = UserStatus.ENABLE
    limits: UserLimits = NO_LIMITS
    """What the user may have in place of what the settings say."""

    def __repr__(self) -> str:
        return f"User({self.username}, {self.user_type.value}, {self.user_status.value})"

    @property
    def is_super(self) -> bool:
        """Whether the user may do everything."""
        return self.user_type is UserType.SUPER

    @property
    def is_enabled(self) -> bool:
        """Whether the user may do anything."""
        return self.user_status is UserStatus.ENABLE


def check_user(user: User) -> None:
    """Raise ``AuthIllegal`` for a name or a password that cannot be used."""
    name, password = user.username, user.password
    if not name:
        raise AuthIllegal("user refused", why="username can not be blank.")
    if len(name) > NAME_CHARACTERS_MAX or not _NAME.fullmatch(name):
        raise AuthIllegal(
            "user refused",
            why=f"{name[:80]!r} is no name of a user",
            hint=f"letters, digits, and _ . @ -, at most {NAME_CHARACTERS_MAX}",
        )
    if not PASSWORD_CHARACTERS_MIN <= len(password) <= PASSWORD_CHARACTERS_MAX or not password.isprintable():
        raise AuthIllegal(
            "user refused",
            why=f"the password of {name} cannot be used",
            hint=f"{PASSWORD_CHARACTERS_MIN} to {PASSWORD_CHARACTERS_MAX} printable characters",
        )
