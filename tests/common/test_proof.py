"""The proof that both ends know a secret."""

from pocketmq.common.proof import client_proof, is_proof, new_nonce, server_proof


def test_a_proof_is_good_for_one_secret_one_user_and_one_pair_of_nonces() -> None:
    proof = client_proof("secret", "alice", "server", "client")
    assert is_proof(proof, client_proof("secret", "alice", "server", "client"))
    for other in (
        client_proof("secret2", "alice", "server", "client"),
        client_proof("secret", "alic", "eserver", "client"),
        client_proof("secret", "alice", "serve", "rclient"),
        client_proof("secret", "alice", "server", "client2"),
        server_proof("secret", "alice", "server", "client"),
        "",
        "\udcff",
        proof[:-1],
    ):
        assert not is_proof(other, proof)


def test_nonces_differ_and_can_be_printed() -> None:
    nonces = {new_nonce() for _ in range(100)}
    assert len(nonces) == 100
    assert all(nonce.isascii() and nonce.isprintable() and len(nonce) == 24 for nonce in nonces)
