"""Secrets that are easily guessed."""

import secrets

import pytest

from pocketmq.auth.users import User, UserStatus
from pocketmq.auth.weak_secrets import EQUAL, SHORT, WELL_KNOWN, weak_users, weakness


@pytest.mark.parametrize(
    ("name", "secret", "why"),
    [
        ("application", "application", EQUAL),
        ("application", "Application1", EQUAL),
        ("application", "application-2026", EQUAL),
        ("app", "12345678", WELL_KNOWN),
        ("app", "Password123!", WELL_KNOWN),
        ("app", "changeme-2026", WELL_KNOWN),
        ("app", "rocketmq", WELL_KNOWN),
        ("app", "aaaaaaaaaaaaaaaaaaaa", WELL_KNOWN),
        ("app", "abababababababab", WELL_KNOWN),
        ("app", "kZ3-9uXa!", SHORT),
        ("app", "kZ3-9uXa!mQ7", ""),
        ("app", "correct horse battery staple", ""),
        ("app", "1" * 5 + "9f2c7b", SHORT),
    ],
)
def test_why_a_secret_is_weak(name: str, secret: str, why: str) -> None:
    assert weakness(name, secret) == why


def test_a_generated_secret_is_never_weak() -> None:
    assert not any(weakness("app", secrets.token_urlsafe(18)) for _ in range(500))


def test_a_disabled_user_does_not_count() -> None:
    users = [
        User(username="one", password="12345678"),
        User(username="two", password="12345678", user_status=UserStatus.DISABLE),
        User(username="three", password=secrets.token_urlsafe(18)),
    ]
    assert list(weak_users(users)) == [("one", WELL_KNOWN)]
