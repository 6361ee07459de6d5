"""Who may connect, before a port is opened."""

from pathlib import Path

import pytest

from pocketmq.auth.config import AuthConfig
from pocketmq.cli.daemon.access import access_of, check_access, warning_of_file
from pocketmq.cli.daemon.daemon import load_settings
from pocketmq.cli.exit_codes import CannotStart
from pocketmq.common.errors import ConfigError
from pocketmq.common.settings import HIDDEN

SECRETS = '[auth]\nauthentication_enabled = true\ninit_username = "root"\ninit_password = "root-secret"\n'


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.0.1", "::1", "localhost"])
def test_loopback_needs_no_users(address: str) -> None:
    settings = load_settings({}, None, [f"broker.bind_address={address}"], {})
    check_access(settings, namesrv=True, broker=True)


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.0.0.1", "", "example.org"])
@pytest.mark.parametrize("section", ["broker", "namesrv"])
def test_beyond_loopback_users_are_needed_or_a_word(address: str, section: str) -> None:
    flags = [f"{section}.bind_address={address}"]
    settings = load_settings({}, None, flags, {})
    with pytest.raises(CannotStart, match=f"{section}.bind_address={address} lets other machines connect") as refused:
        check_access(settings, namesrv=True, broker=True)
    assert "--open" in refused.value.hint
    check_access(settings, namesrv=section == "broker", broker=section == "namesrv")  # it serves nothing there
    check_access(load_settings({}, None, [*flags, "auth.open=true"], {}), namesrv=True, broker=True)
    check_access(load_settings({}, None, [*flags, "authentication_enabled=true"], {}), namesrv=True, broker=True)


@pytest.mark.parametrize("setting", ["broker.listeners=10.0.0.1:1", "namesrv.listeners=outside=10.0.0.1:1"])
def test_a_further_listener_needs_users_as_well(setting: str) -> None:
    settings = load_settings({}, None, [setting], {})
    with pytest.raises(CannotStart, match=r"listeners=10\.0\.0\.1 lets other machines connect"):
        check_access(settings, namesrv=True, broker=True)
    check_access(load_settings({}, None, [setting, "auth.open=true"], {}), namesrv=True, broker=True)


def test_the_http_port_needs_users_or_a_word_too() -> None:
    """Its pages name topics, groups and clients."""
    wide = "metrics.bind_address=0.0.0.0"
    settings = load_settings({}, None, [wide], {})
    with pytest.raises(CannotStart, match=r"metrics\.bind_address=0\.0\.0\.0 lets other machines connect"):
        check_access(settings, namesrv=False, broker=True)
    check_access(settings, namesrv=True, broker=False)  # a name server serves none unless a port is set
    with pytest.raises(CannotStart, match=r"metrics\.bind_address"):
        check_access(load_settings({}, None, [wide, "metrics.listen_port=5558"], {}), namesrv=True, broker=False)
    check_access(load_settings({}, None, [wide, "metrics.listen_port=0"], {}), namesrv=True, broker=True)
    check_access(load_settings({}, None, [wide, "auth.open=true"], {}), namesrv=True, broker=True)
    check_access(load_settings({}, None, [wide, "authentication_enabled=true"], {}), namesrv=True, broker=True)


@pytest.mark.parametrize("limit", ["user_bytes_in_per_second", "user_topics_max"])
def test_limits_of_users_need_users(limit: str) -> None:
    """Else an operator would take for limited what is not."""
    with pytest.raises(ConfigError, match=f"limits.{limit} without auth.authentication_enabled"):
        check_access(load_settings({}, None, [f"limits.{limit}=1"], {}), namesrv=True, broker=True)
    known = ["authentication_enabled=true", f"limits.{limit}=1"]
    check_access(load_settings({}, None, known, {}), namesrv=True, broker=True)
    addresses = ["limits.address_bytes_in_per_second=1"]
    check_access(load_settings({}, None, addresses, {}), namesrv=True, broker=True)


def test_a_secret_on_the_command_line_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError) as refused:
        load_settings({}, None, ["auth.init_password=root-secret"], {})
    assert "POCKETMQ_AUTH__INIT_PASSWORD" in str(refused.value)
    assert "root-secret" not in str(refused.value)


def test_a_secret_of_another_type_is_not_repeated(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("[auth]\ninit_password = [1234567]\n")
    with pytest.raises(ConfigError) as refused:
        load_settings({}, str(file), [], {})
    assert HIDDEN in str(refused.value)
    assert "1234567" not in str(refused.value)


def test_a_file_with_secrets_that_others_may_read_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(SECRETS)
    file.chmod(0o644)
    settings = load_settings({}, str(file), [], {})
    assert "chmod 600" in warning_of_file(settings, str(file))
    assert "root-secret" not in warning_of_file(settings, str(file))
    file.chmod(0o600)
    assert warning_of_file(settings, str(file)) == ""
    assert warning_of_file(load_settings({}, None, [], {}), None) == ""


def test_servers_of_one_process_get_a_secret_of_their_own() -> None:
    config = AuthConfig(authentication_enabled=True, init_username="root", init_password="root-secret")
    first, second = access_of(config, alone=True), access_of(config, alone=True)
    assert first.inner is not None
    assert second.inner is not None
    assert first.inner.secret_key != second.inner.secret_key
    assert access_of(config, alone=False).inner is None
    assert access_of(AuthConfig(), alone=True).inner is None
