"""RocketMQ's signature of a request."""

from base64 import b64encode
from hashlib import sha1
from hmac import HMAC

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.remoting.security.credentials import Credentials
from pocketmq.remoting.security.signature import (
    ACCESS_KEY,
    SECURITY_TOKEN,
    SIGNATURE,
    UNIQUE_KEY_QUERY,
    sign,
    verify,
)

ALICE = Credentials("alice", "alice-secret")
FIELDS = {"topic": "orders", "queueId": "1", "b": "zwei", "B": "eins"}
BODY = b"\x00\xffbody"


def signed(credentials: Credentials = ALICE, fields: dict[str, str] = FIELDS, body: bytes = BODY) -> dict[str, str]:
    return {**fields, **sign(credentials, fields, body)}


def test_the_values_are_signed_in_the_order_of_their_names_and_the_body_last() -> None:
    content = b"alice" + b"eins" + b"zwei" + b"1" + b"orders" + BODY  # AccessKey, B, b, queueId, topic
    expected = b64encode(HMAC(b"alice-secret", content, sha1).digest()).decode()
    assert sign(ALICE, FIELDS, BODY) == {ACCESS_KEY: "alice", SIGNATURE: expected}
    assert sign(ALICE, FIELDS, [BODY[:2], BODY[2:]]) == sign(ALICE, FIELDS, BODY)


def test_a_token_is_signed_too() -> None:
    fields = signed(Credentials("alice", "alice-secret", "token"))
    assert fields[SECURITY_TOKEN] == "token"
    assert verify("alice-secret", fields, BODY)
    assert not verify("alice-secret", {**fields, SECURITY_TOKEN: "other"}, BODY)


@pytest.mark.parametrize(
    "changed",
    [
        {**signed(), "topic": "payments"},
        {**signed(), "added": "x"},
        {**signed(), SIGNATURE: ""},
        {**signed(), SIGNATURE: "\udcff"},
        {**signed(), SIGNATURE: signed()[SIGNATURE][:-2]},
        {name: value for name, value in signed().items() if name != SIGNATURE},
        {name: value for name, value in signed().items() if name != "queueId"},
    ],
)
def test_a_changed_request_is_not_verified(changed: dict[str, str]) -> None:
    assert verify("alice-secret", signed(), BODY)
    assert not verify("alice-secret", changed, BODY)
    assert not verify("alice-secret", signed(), BODY + b"x")
    assert not verify("another secret", signed(), BODY)


def test_an_older_client_leaves_the_mark_of_a_query_by_unique_key_out() -> None:
    """RocketMQ's clients up to 4.9.3 add that field after they have signed."""
    assert verify("alice-secret", {**signed(), UNIQUE_KEY_QUERY: "true"}, BODY)
    assert verify("alice-secret", signed(fields={**FIELDS, UNIQUE_KEY_QUERY: "true"}), BODY)


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=6), st.binary(max_size=20))
def test_any_fields_can_be_signed_and_verified(fields: dict[str, str], body: bytes) -> None:
    for name in (ACCESS_KEY, SIGNATURE, SECURITY_TOKEN, UNIQUE_KEY_QUERY):
        fields.pop(name, None)
    assert verify("alice-secret", signed(fields=fields, body=body), body)
    assert not verify("other", signed(fields=fields, body=body), body)
