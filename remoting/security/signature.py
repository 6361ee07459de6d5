"""RocketMQ's signature of a request: HMAC-SHA1 over its ext fields and body.

    extra = sign(credentials, fields, body)              # the ext fields that a client adds
    ok = verify(secret_key, fields, body)                # fields as received, AccessKey and Signature among them

What is signed: the values of all ext fields but ``Signature``, in the order of their names, one behind the other
without a separator, then the body (RocketMQ ``AclUtils.combineRequestContent``, ``AclClientRPCHook``). The signature is
Base64. It has no nonce and no time: whoever reads a request can send it again. Only TLS protects from that.

Lives here: the names of the fields, ``sign``, ``verify``, ``is_signature``.
"""

import hmac
from binascii import b2a_base64
from collections.abc import Mapping, Sequence
from typing import Final

from pocketmq.remoting.codec import ACCESS_KEY as ACCESS_KEY
from pocketmq.remoting.frame import Buffer
from pocketmq.remoting.security.credentials import Credentials

SIGNATURE: Final = "Signature"
SECURITY_TOKEN: Final = "SecurityToken"
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
"""A field of QUERY_MESSAGE. Clients up to 4.9.3 leave it out of what they sign, later ones do not."""


def _content(fields: Mapping[str, str], body: Buffer | Sequence[Buffer]) -> bytes:
    names = sorted(name for name in fields if name != SIGNATURE)
    if not "".join(names).isascii():  # Java compares UTF-16 units
        names.sort(key=lambda name: name.encode("utf-16-be", "surrogatepass"))
    parts: list[Buffer] = ["".join([fields[name] for name in names]).encode(errors="replace")]
    if isinstance(body, (bytes, bytearray, memoryview)):
        parts.append(body)
    else:
        parts.extend(body)
    return b"".join(parts)


def _digest(secret_key: str, content: bytes) -> bytes:
    return b2a_base64(hmac.digest(secret_key.encode(errors="replace"), content, "sha1"), newline=False)


def is_signature(given: str, secret_key: str, content: bytes) -> bool:
    """Return whether ``given`` is the signature of ``content`` under ``secret_key``, in constant time. ``content``: the
    values of the fields in the order of their names, then the body."""
    return hmac.compare_digest(given.encode(errors="replace"), _digest(secret_key, content))


def sign(credentials: Credentials, fields: Mapping[str, str], body: Buffer | Sequence[Buffer] = b"") -> dict[str, str]:
    """Return the ext fields to add to a request whose other ext fields are ``fields``."""
    added = {ACCESS_KEY: credentials.access_key}
    if credentials.security_token:
        added[SECURITY_TOKEN] = credentials.security_token
    added[SIGNATURE] = _digest(credentials.secret_key, _content({**fields, **added}, body)).decode()
    return added


def verify(secret_key: str, fields: Mapping[str, str], body: Buffer | Sequence[Buffer]) -> bool:
    """Return whether ``fields`` carry the signature of somebody who knows ``secret_key``, in constant time."""
    given = fields.get(SIGNATURE, "")
    matches = is_signature(given, secret_key, _content(fields, body))
    if not matches and UNIQUE_KEY_QUERY in fields:
        older = {name: value for name, value in fields.items() if name != UNIQUE_KEY_QUERY}
        matches = is_signature(given, secret_key, _content(older, body))
    return matches
