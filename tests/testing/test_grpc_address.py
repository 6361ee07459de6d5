"""A test's broker says where gRPC clients connect, if it serves them."""

import pytest

from pocketmq.testing import PocketBroker

pytest.importorskip("h2", reason="gRPC needs h2: pip install 'pocketmq[grpc]'")


def test_a_broker_has_a_grpc_address_if_it_was_asked_for() -> None:
    with PocketBroker(broker={"grpc_port": -1}) as broker:
        assert broker.grpc == f"127.0.0.1:{broker.app.grpc_port}"
        assert broker.app.grpc_port > 0
    with PocketBroker() as broker:
        assert broker.grpc == ""
