"""The TLS and the credentials of a client, from its arguments."""

import ssl
from pathlib import Path
from typing import Any

import pytest

from pocketmq.common.errors import ConfigError
from pocketmq.remoting.security.client_security import NO_SECURITY, TLS, ClientSecurity, client_security
from pocketmq.remoting.security.credentials import Credentials

CERTIFICATES = Path(__file__).parent / "certificates"
CA = str(CERTIFICATES / "ca.pem")
CLIENT = str(CERTIFICATES / "client.pem")
LOCKED = str(CERTIFICATES / "client_locked.key")
ALICE = Credentials("alice", "hidden")


def test_nothing_given_is_plain() -> None:
    assert client_security(None, None) is NO_SECURITY
    assert client_security(None, False) is NO_SECURITY
    assert client_security(ALICE, None) == ClientSecurity(ALICE)


def test_true_trusts_the_system() -> None:
    security = client_security(None, True)
    assert security.context is not None
    assert security.context.verify_mode == ssl.CERT_REQUIRED
    assert security.context.check_hostname


def test_a_context_is_taken_as_it_is() -> None:
    context = ssl.create_default_context()
    assert client_security(ALICE, context) == ClientSecurity(ALICE, context)


def test_the_default_verifies_and_knows_no_old_tls() -> None:
    context = TLS(ca=CA).context()
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert [each["serialNumber"] for each in context.get_ca_certs()]


def test_verify_false_trusts_anyone() -> None:
    context = TLS(verify=False).context()
    assert context.verify_mode == ssl.CERT_NONE
    assert not context.check_hostname


def test_a_directory_of_authorities(tmp_path: Path) -> None:
    TLS(ca=str(tmp_path)).context()


def test_a_certificate_of_its_own() -> None:
    TLS(cert=CLIENT).context()
    TLS(cert=CLIENT, key=LOCKED, key_password="open-sesame").context()


@pytest.mark.parametrize(
    ("tls", "why"),
    [
        (TLS(key=LOCKED), "a key without a certificate"),
        (TLS(ca=CA, verify=False), "verify=False does not use ca="),
        (TLS(ca="/nowhere/ca.pem"), "/nowhere/ca.pem: No such file or directory"),
        (TLS(ca=LOCKED), "OpenSSL cannot use"),
        (TLS(cert="/nowhere/client.pem"), "/nowhere/client.pem: No such file or directory"),
        (TLS(cert=CA), "OpenSSL cannot use"),
        (TLS(cert=CLIENT, key=LOCKED), "OpenSSL cannot use"),
        (TLS(cert=CLIENT, key=LOCKED, key_password="wrong-hidden"), "OpenSSL cannot use"),
    ],
)
def test_files_that_cannot_be_used(tls: TLS, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        client_security(None, tls)
    assert why in str(caught.value)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("credentials", "tls", "hint"),
    [(("alice", "x"), None, "Credentials(access_key, secret_key)"), (None, "ca.pem", "TLS(ca=...)")],
)
def test_arguments_of_another_kind(credentials: Any, tls: Any, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        client_security(credentials, tls)
    assert hint in str(caught.value)


def test_no_secret_is_shown() -> None:
    assert "hidden" not in repr(client_security(ALICE, TLS(ca=CA)))
    assert "hidden" not in repr(TLS(key_password="hidden"))
