"""The proof of identity on a native connection, once for all its requests.

1. The server's announcement carries ``nonce``, fresh for each connection; empty where it asks for no proof.
2. The client sends AUTHENTICATE: the user, a nonce of its own, ``client_proof``.
3. The server's answer carries ``server_proof``: so the client knows that the server has the secret too.

The bytes: ``common.proof``.
"""

from pocketmq.common.proof import client_proof, is_proof, new_nonce, server_proof

__all__ = ["client_proof", "is_proof", "new_nonce", "server_proof"]
