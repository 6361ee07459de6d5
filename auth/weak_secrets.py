"""Secrets that are easily guessed.

Whoever records one signed request can try secrets for it as fast as HMAC-SHA1 runs, unless TLS hides it. So a secret
should be one that nobody tries.

Lives here: ``weakness``, ``weak_users``.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from pocketmq.auth.users import User

CHARACTERS_MIN: Final = 12
DIFFERENT_MIN: Final = 5
EQUAL: Final = "equal to the name"
WELL_KNOWN: Final = "well known"
SHORT: Final = f"shorter than {CHARACTERS_MIN} characters"
_STEMS: Final = (
    *("password", "passwd", "secret", "secretkey", "changeme", "qwerty"),
    *("rocketmq", "pocketmq", "admin", "root"),
)
_SHIPPED: Final = ("12345678", "123456789", "1234567890", "1234567", "87654321", "abcdefgh", "qwertyuiop", "letmein")
"""Among them the one in RocketMQ 4.9's plain_acl.yml, 12345678."""


def weakness(name: str, secret: str) -> str:
    """Return why a user's secret is weak; empty: it is not.

    >>> weakness("app", "app"), weakness("app", "RocketMQ123"), weakness("app", "8Zk2-pQ")
    ('equal to the name', 'well known', 'shorter than 12 characters')
    """
    plain = secret.lower()
    stem = plain.strip("0123456789!@#$%&*-_. ")
    if plain == name.lower() or (stem and stem == name.lower()):
        return EQUAL
    if plain in _SHIPPED or stem in _STEMS or len(set(plain)) < DIFFERENT_MIN:
        return WELL_KNOWN
    return SHORT if len(secret) < CHARACTERS_MIN else ""


def weak_users(users: Iterable[User]) -> Iterator[tuple[str, str]]:
    """Yield name and reason of each user who is enabled and whose secret is weak."""
    for user in users:
        why = weakness(user.username, user.password) if user.is_enabled else ""
        if why:
            yield user.username, why
