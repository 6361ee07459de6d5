"""RocketMQ's Java clients over TLS, with servers that take nothing else."""

from pathlib import Path

import pytest

from tests.interop.java_clients import java_clients
from tests.interop.pocketmq_server import pocketmq_server
from tests.remoting.protected_servers import CERTIFICATES


@pytest.mark.parametrize("version", ["4.9", "5.3"])
def test_a_producer_sends_over_tls(version: str, tmp_path: Path) -> None:
    """The client checks the certificate of name server and broker."""
    ca = CERTIFICATES / "ca.pem"
    settings = (
        "tls.server_mode=enforcing",
        f"tls.server_cert_path={CERTIFICATES / 'server.pem'}",
        "tls.enable=true",
        f"tls.client_trust_cert_path={ca}",
        "metrics.listen_port=0",
    )
    options = (
        "-Dtls.enable=true",
        "-Dtls.test.mode.enable=false",
        "-Dtls.client.authServer=true",
        f"-Dtls.client.trustCertPath={ca}",
    )
    with (
        pocketmq_server(tmp_path, *settings) as server,
        java_clients(version, "JSON", server.namesrv, tmp_path, *options) as java,
    ):
        receipts = java.send(java.producer, topic="over-tls", body="x", count=5)
        assert len(receipts) == 5
