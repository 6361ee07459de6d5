"""The proof that both ends of a connection know a secret, without sending it.

    server: nonce = new_nonce()                       client: client_proof(secret, user, nonce, own_nonce)
    server: is_proof(given, client_proof(...)), then server_proof(secret, user, nonce, own_nonce)

A proof is Base64 of HMAC-SHA256 under the user's secret over a label and the fields, each behind its length. The nonces
make each proof good for one connection: a recorded one opens nothing. Without TLS somebody between the two can still
take over the connection after the proof.

Lives here: ``new_nonce``, ``client_proof``, ``server_proof``, ``is_proof``.
"""

import hmac
import secrets
from base64 import b64encode
from typing import Final

NONCE_BYTES: Final = 18
NONCE_CHARACTERS: Final = 24
PROOF_CHARACTERS: Final = 44
_CLIENT: Final = "PocketMQ client proof 1"
_SERVER: Final = "PocketMQ server proof 1"


def new_nonce() -> str:
    """Return a fresh nonce, 24 printable characters."""
    return b64encode(secrets.token_bytes(NONCE_BYTES)).decode()


def _proof(secret_key: str, *fields: str) -> str:
    parts = [field.encode(errors="replace") for field in fields]
    content = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return b64encode(hmac.digest(secret_key.encode(errors="replace"), content, "sha256")).decode()


def client_proof(secret_key: str, user: str, server_nonce: str, client_nonce: str) -> str:
    """Return the client's proof that it knows the secret of ``user``."""
    return _proof(secret_key, _CLIENT, user, server_nonce, client_nonce)


def server_proof(secret_key: str, user: str, server_nonce: str, client_nonce: str) -> str:
    """Return the server's proof that it knows the secret of ``user``."""
    return _proof(secret_key, _SERVER, user, server_nonce, client_nonce)


def is_proof(given: str, expected: str) -> bool:
    """Return whether two proofs are equal, in constant time."""
    return hmac.compare_digest(given.encode(errors="replace"), expected.encode())
