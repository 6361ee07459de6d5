"""The keys of a client."""

import pytest

from pocketmq.remoting.errors import CredentialsIllegal
from pocketmq.remoting.security.credentials import KEY_BYTES_MAX, Credentials


def test_the_secret_is_not_shown() -> None:
    text = repr(Credentials("alice", "hidden-1", "hidden-2"))
    assert "alice" in text
    assert "hidden" not in text


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        (("", "secret"), "access_key is empty"),
        (("alice", ""), "secret_key is empty"),
        (("alice", "secret\n"), "secret_key contains a control character"),
        (("alice", "s" * (KEY_BYTES_MAX + 1)), "secret_key is longer than 256 bytes"),
        (("alice", "secret", "\x00"), "security_token contains a control character"),
        (("alice", None), "secret_key is NoneType"),
    ],
)
def test_keys_that_cannot_be_are_refused_without_showing_them(keys: tuple[str, ...], why: str) -> None:
    with pytest.raises(CredentialsIllegal) as refused:
        Credentials(*keys)
    assert why in str(refused.value)
    assert "ssss" not in str(refused.value)
