"""Settings of TLS that cannot be meant."""

from typing import Any

import pytest

from pocketmq.common.errors import ConfigError
from pocketmq.remoting.security.tls_config import TlsConfig


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"server_mode": "on"}, "tls.server_mode='on'"),
        ({"server_need_client_auth": "yes"}, "tls.server_need_client_auth='yes'"),
        ({"server_mode": "enforcing"}, "server_mode=enforcing without tls.server_cert_path"),
        ({"server_key_path": "key.pem"}, "tls.server_key_path without tls.server_cert_path"),
        ({"server_need_client_auth": "require"}, "server_need_client_auth=require without tls.server_cert_path"),
        (
            {"server_cert_path": "a.pem", "server_need_client_auth": "optional"},
            "server_need_client_auth=optional without tls.server_trust_cert_path",
        ),
        ({"client_key_path": "key.pem"}, "tls.client_key_path without tls.client_cert_path"),
        ({"handshake_timeout_mills": 0}, "tls.handshake_timeout_mills=0"),
        ({"handshakes_per_second_max": 1 << 31}, "tls.handshakes_per_second_max"),
        ({"reload_interval": -1}, "tls.reload_interval=-1"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_named(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError) as raised:
        TlsConfig(**settings)
    assert why in raised.value.why


def test_a_certificate_switches_tls_on() -> None:
    assert not TlsConfig().serves_tls
    assert TlsConfig(server_cert_path="a.pem").serves_tls
    assert not TlsConfig(server_cert_path="a.pem", server_mode="disabled").serves_tls
