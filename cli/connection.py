"""How commands connect: keys and TLS from options, the environment, and named connections in a file.

    # ~/.config/pocketmq/connections.toml, mode 0600
    [prod]
    namesrv = "10.0.0.1:9876;10.0.0.2:9876"
    access_key = "app"
    secret_key = "..."                        # or secret_key_file = "/run/secrets/pocketmq"
    tls_ca = "/etc/pocketmq/ca.pem"           # any tls_... key means TLS; tls = true alone trusts the system's CAs

Of one value, the first of these counts: an option, the connection that an option names, the environment, the connection
that the environment names. A secret is never an option: every user of a machine can read command lines.

The option is ``--connection`` and not ``--profile``, which is a set of settings of ``standalone`` and ``broker``.

Lives here: ``Connection``, ``connect_with``, and ``given``, the arguments for the classes of the SDK.
"""

import re
import stat
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, TypedDict

from pocketmq.common.errors import ConfigError
from pocketmq.remoting.security.client_security import TLS
from pocketmq.remoting.security.credentials import Credentials

FILE_BYTES_MAX: Final = 65_536
TEXTS: Final = (
    "namesrv",
    "access_key",
    "secret_key",
    "secret_key_file",
    "security_token",
    "tls_ca",
    "tls_cert",
    "tls_key",
    "tls_key_password",
    "tls_server_hostname",
)
FLAGS: Final = ("tls", "tls_verify")
OPTIONS: Final = ("access_key", "secret_key_file", "tls", "tls_ca", "tls_cert", "tls_key", "tls_server_hostname")
"""The values that have an option before the subcommand."""
VARIABLES: Final[Mapping[str, str]] = {f"POCKETMQ_{name.upper()}": name for name in (*TEXTS, *FLAGS)}
"""Environment variable → value. The first, POCKETMQ_NAMESRV, is also that of the option --namesrv."""
CONNECTION_VARIABLE: Final = "POCKETMQ_CONNECTION"
FILE_VARIABLE: Final = "POCKETMQ_CONNECTIONS_FILE"
_TRUE: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_TOOLS_YML: Final = re.compile(r"""^(accessKey|secretKey):[ \t]*(["']?)(.*?)\2[ \t]*(?:[ \t]#.*)?$""", re.MULTILINE)

Value = str | bool
Values = dict[str, Value]


class Given(TypedDict):
    """The arguments for every class of the SDK that connects."""

    credentials: Credentials | None
    tls: TLS | None


_PLAIN: Final = Given(credentials=None, tls=None)
_given: ContextVar[Given] = ContextVar("pocketmq_connection", default=_PLAIN)


def given() -> Given:
    """Return the credentials and the TLS of the command that runs."""
    return _given.get()


def connect_with(parameters: Mapping[str, Any], environment: Mapping[str, str]) -> str:
    """Take the values for this command; return its name servers, empty if nothing but an option can have them.

    ``parameters``: those of the root command, as typer has them. Raise ``ConfigError``.
    """
    given_options = ((name, parameters.get(f"_{name}")) for name in OPTIONS)
    options = {name: value for name, value in given_options if value not in ("", None)}
    connection = parameters.get("_connection") or ""
    by_variable = from_environment(environment)
    named = environment.get(CONNECTION_VARIABLE, "") if not connection else ""
    layers = [
        options,
        from_file(connection, environment) if connection else {},
        by_variable,
        from_file(named, environment) if named else {},
    ]
    values: Values = {}
    for layer in reversed(layers):
        if layer.get("secret_key_file"):
            values.pop("secret_key", None)
        elif layer.get("secret_key"):
            values.pop("secret_key_file", None)
        values |= layer
    _given.set(Given(credentials=_credentials(values), tls=_tls(values)))
    return str(values.get("namesrv", ""))


def from_environment(environment: Mapping[str, str]) -> Values:
    """Return the values of the environment."""
    values: Values = {}
    for variable, name in VARIABLES.items():
        text = environment.get(variable, "")
        if not text:
            continue
        if name in FLAGS:
            if text.lower() not in _TRUE:
                raise ConfigError(f"bad {variable}", why=repr(text), hint="true or false")
            values[name] = _TRUE[text.lower()]
        else:
            values[name] = text
    return values


def connections_file(environment: Mapping[str, str]) -> Path:
    """Return the path of the file of connections: POCKETMQ_CONNECTIONS_FILE, or the one of this user."""
    if named := environment.get(FILE_VARIABLE):
        return Path(named)
    home = environment.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "pocketmq" / "connections.toml"


def from_file(name: str, environment: Mapping[str, str]) -> Values:
    """Return the values of a named connection. Raise ``ConfigError``, which never has a value of the file."""
    path = connections_file(environment)
    text = _read(path, f"no connection {name}")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise ConfigError(f"{path} refused", why=f"others may read it: mode {mode:04o}", hint=f"chmod 600 {path}")
    import tomllib  # few commands need it

    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = re.search(r"at line \d+", str(error))
        raise ConfigError(f"{path} refused", why=f"no TOML {where[0] if where else ''}".rstrip()) from None
    values = content.get(name)
    if not isinstance(values, dict):
        known = ", ".join(sorted(key for key, value in content.items() if isinstance(value, dict))) or "none"
        raise ConfigError(f"no connection {name}", why=f"{path} has {known}", hint=f"a table [{name}]")
    for key, value in values.items():
        if key not in TEXTS and key not in FLAGS:
            raise ConfigError(f"{path} refused", why=f"[{name}] has {key}", hint="keys: " + ", ".join((*TEXTS, *FLAGS)))
        if not isinstance(value, bool if key in FLAGS else str):
            raise ConfigError(f"{path} refused", why=f"[{name}] {key} is {type(value).__name__}")
    return values


def _read(path: Path, what: str) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(what, why=f"{path}: {error.strerror or type(error).__name__}") from error
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(what, why=f"{path} has more than {FILE_BYTES_MAX} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ConfigError(what, why=f"{path} is no UTF-8") from None


def _credentials(values: Values) -> Credentials | None:
    texts = {name: str(values.get(name, "")) for name in TEXTS}
    access_key, secret_key = texts["access_key"], texts["secret_key"]
    if texts["secret_key_file"] and not secret_key:
        in_file, secret_key = _from_key_file(Path(texts["secret_key_file"]).expanduser())
        access_key = access_key or in_file
    if not access_key and not secret_key:
        return None
    if not secret_key:
        raise ConfigError(
            f"no secret key for access key {access_key}", hint="--secret-key-file FILE, or POCKETMQ_SECRET_KEY"
        )
    if not access_key:
        raise ConfigError("no access key for the secret key", hint="--access-key NAME, or POCKETMQ_ACCESS_KEY")
    return Credentials(access_key, secret_key, texts["security_token"])


def _from_key_file(path: Path) -> tuple[str, str]:
    """Return access key, if the file has one, and secret key: of RocketMQ's ``tools.yml``, or the whole text."""
    text = _read(path, "no secret key")
    if path.suffix in (".yml", ".yaml"):
        found = {name: value for name, _, value in _TOOLS_YML.findall(text)}
        if "secretKey" not in found:
            raise ConfigError("no secret key", why=f"{path} has no line secretKey:")
        return found.get("accessKey", ""), found["secretKey"]
    secret_key = text.removesuffix("\n").removesuffix("\r")
    if not secret_key:
        raise ConfigError("no secret key", why=f"{path} is empty")
    return "", secret_key


def _tls(values: Values) -> TLS | None:
    details = [name for name in (*TEXTS, "tls_verify") if name.startswith("tls_") and name in values]
    if not values.get("tls", bool(details)):
        return None
    return TLS(
        ca=_path(values.get("tls_ca", "")),
        cert=_path(values.get("tls_cert", "")),
        key=_path(values.get("tls_key", "")),
        key_password=str(values.get("tls_key_password", "")),
        server_hostname=str(values.get("tls_server_hostname", "")),
        verify=bool(values.get("tls_verify", True)),
    )


def _path(value: Value) -> str:
    return str(Path(str(value)).expanduser()) if value else ""
