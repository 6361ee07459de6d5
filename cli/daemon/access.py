"""What a start makes sure of before it opens a port: who may connect.

Lives here: ``check_access``, ``access_of``, ``warning_of_file``.
"""

import os
import secrets
import stat
from typing import Final

import msgspec

from pocketmq.auth.config import AuthConfig
from pocketmq.broker.config import BrokerConfig
from pocketmq.cli.exit_codes import CannotStart
from pocketmq.common.addresses import is_loopback_host
from pocketmq.common.errors import ConfigError
from pocketmq.common.settings import NOT_SET, Settings, is_secret
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.remoting.http_server import MetricsConfig
from pocketmq.remoting.limits.config import LimitsConfig

DEFAULT_ORIGIN: Final = "default of pocketmq"
"""The origin of a value that the daemons choose, but not the library."""


def check_access(settings: Settings, *, namesrv: bool, broker: bool) -> None:
    """Raise ``CannotStart`` where strangers could connect and nobody has to authenticate, ``ConfigError`` where users
    are limited and there are none."""
    auth = settings.get(AuthConfig)
    limited = [name for name in LimitsConfig.__struct_fields__ if name.startswith("user_")]
    limited = [name for name in limited if getattr(settings.get(LimitsConfig), name)]
    if limited and not auth.authentication_enabled:
        raise ConfigError(
            "bad setting",
            why=f"limits.{limited[0]} without auth.authentication_enabled: no user is known, so nobody is limited",
            hint=f"enable it, or limit addresses and clients: limits.{limited[0].replace('user_', 'address_')}"
            if limited[0].endswith("_per_second")
            else "enable it",
        )
    if auth.authentication_enabled or auth.open:
        return
    served = []
    if namesrv:
        config = settings.get(NamesrvConfig)
        served.append(("namesrv.bind_address", config.bind_address))
        served += [("namesrv.listeners", host) for host, _ in config.named_listeners().values()]
    if broker:
        broker_config = settings.get(BrokerConfig)
        served.append(("broker.bind_address", broker_config.bind_address))
        served += [("broker.listeners", host) for host, _ in broker_config.more_listeners()]
    if serves_http(settings, broker=broker):
        served.append(("metrics.bind_address", settings.get(MetricsConfig).bind_address))
    for setting, address in served:
        if not is_loopback_host(address):
            raise CannotStart(
                "the server does not start",
                why=f"{setting}={address} lets other machines connect, and nobody has to authenticate",
                hint="set auth.authentication_enabled=true (docs/security.md), or say --open if the network is trusted",
            )


def serves_http(settings: Settings, *, broker: bool) -> bool:
    """Return whether a daemon has an HTTP port: a broker by default, a name server alone if a port is set."""
    is_set = settings.origin("metrics", "listen_port") != DEFAULT_ORIGIN
    return bool(settings.get(MetricsConfig).listen_port) and (broker or is_set)


def access_of(auth: AuthConfig, *, alone: bool) -> AuthConfig:
    """Return the settings of access control; name server and broker of one process (``alone``) get a secret of their
    own if none is set."""
    if not auth.authentication_enabled or auth.inner_access_key or not alone:
        return auth
    return msgspec.structs.replace(
        auth, inner_access_key=f"inner-{secrets.token_hex(8)}", inner_secret_key=secrets.token_urlsafe(32)
    )


def warning_of_file(settings: Settings, config_file: str | None) -> str:
    """Return a warning where others may read a settings file with a secret; empty: all is well."""
    if config_file is None:
        return ""
    given = [
        field.name
        for field in msgspec.structs.fields(AuthConfig)
        if is_secret(field.type) and settings.origin("auth", field.name) not in (NOT_SET, "")
    ]
    try:
        mode = stat.S_IMODE(os.stat(config_file).st_mode)
    except OSError:
        return ""
    if not given or not mode & 0o077:
        return ""
    return f"others may read {config_file}, which holds auth.{given[0]}: chmod 600 {config_file}"
