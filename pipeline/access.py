"""How sources, sinks and jobs prove who they are, and their TLS.

    spark.read.format("pocketmq").options(accessKey="app", secretKeyFile="/run/secrets/app", tlsCa="ca.pem", ...)

Options travel with Spark's tasks, and files are read where a task runs: their paths must be valid on the driver and the
executors. No ``repr``, plan, log or error has a secret.

Lives here: ``Access``, ``use_access`` and ``job_access``.
"""

import os
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypedDict

from pocketmq.client import TLS, Credentials
from pocketmq.common.errors import PocketMQError
from pocketmq.pipeline.errors import OptionIllegal
from pocketmq.pipeline.options import Options

ACCESS_OPTIONS: Final = (
    "accessKey",
    "secretKey",
    "secretKeyFile",
    "securityToken",
    "tls",
    "tlsCa",
    "tlsCert",
    "tlsKey",
    "tlsKeyPassword",
    "tlsServerHostname",
    "tlsVerify",
)
_VARIABLES: Final = {"POCKETMQ_" + "".join(f"_{c}" if c.isupper() else c for c in o).upper(): o for o in ACCESS_OPTIONS}
"""Environment variable of a job → option: POCKETMQ_SECRET_KEY_FILE → secretKeyFile."""
SECRET_BYTES_MAX: Final = 4_096


class AccessArguments(TypedDict):
    """The arguments for every class of the SDK that connects."""

    credentials: Credentials | None
    tls: TLS | None


@dataclass(slots=True, frozen=True)
class Access:
    """Keys and TLS of one read, write or job; plain data, sent with tasks."""

    credentials: Credentials | None = None
    tls: TLS | None = None

    @classmethod
    def of(cls, options: Options) -> "Access":
        """Read and check options. Raises ``OptionIllegal``, which never has a secret."""
        return cls(_credentials(options), _tls(options))

    def arguments(self) -> AccessArguments:
        """Return what a class of the SDK takes."""
        return AccessArguments(credentials=self.credentials, tls=self.tls)

    def options(self) -> dict[str, str]:
        """Return the options of a read or write with the same keys and TLS."""
        texts: dict[str, str] = {}
        if self.credentials is not None:
            texts["accessKey"] = self.credentials.access_key
            texts["secretKey"] = self.credentials.secret_key
            texts["securityToken"] = self.credentials.security_token
        if self.tls is not None:
            texts["tls"] = "true"
            texts["tlsVerify"] = str(self.tls.verify).lower()
            texts["tlsCa"], texts["tlsCert"], texts["tlsKey"] = self.tls.ca, self.tls.cert, self.tls.key
            texts["tlsKeyPassword"] = self.tls.key_password
            texts["tlsServerHostname"] = self.tls.server_hostname
        return {name: text for name, text in texts.items() if text}


NO_ACCESS: Final = Access()
_of_job: ContextVar[Access | None] = ContextVar("pocketmq_job_access", default=None)


def use_access(access: Access) -> None:
    """Let the job that runs next use these keys and this TLS."""
    _of_job.set(access)


def job_access() -> Access:
    """Return keys and TLS of the job: those that the command has set, else those of the environment."""
    return _of_job.get() or from_environment(os.environ)


def from_environment(environment: Mapping[str, str]) -> Access:
    """Return what ``POCKETMQ_ACCESS_KEY`` and the other variables say; for a job that was not started by a command."""
    given = {option: environment[variable] for variable, option in _VARIABLES.items() if environment.get(variable)}
    return Access.of(Options(given, ACCESS_OPTIONS))


def _credentials(options: Options) -> Credentials | None:
    way = options.at_most_one("secretKey", "secretKeyFile")
    if way is None and "accessKey" not in options:
        return None
    if way is None:
        raise OptionIllegal("option missing", why="accessKey without a secret", hint='.option("secretKeyFile", …)')
    secret = options.text("secretKey", "") if way == "secretKey" else _read_secret(options.text("secretKeyFile"))
    try:
        return Credentials(options.text("accessKey"), secret, options.text("securityToken", ""))
    except PocketMQError as error:
        raise OptionIllegal("bad option", why=error.why, hint=error.hint) from None


def _read_secret(name: str) -> str:
    try:
        with Path(name).open("rb") as file:
            return file.read(SECRET_BYTES_MAX).decode().rstrip("\r\n")
    except OSError as error:
        raise OptionIllegal("bad option", why=f"secretKeyFile={name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise OptionIllegal("bad option", why=f"secretKeyFile={name} is no UTF-8") from None


def _tls(options: Options) -> TLS | None:
    details = [name for name in ACCESS_OPTIONS if name.startswith("tls") and name != "tls" and name in options]
    if not options.flag("tls", bool(details)):
        return None
    return TLS(
        ca=options.text("tlsCa", ""),
        cert=options.text("tlsCert", ""),
        key=options.text("tlsKey", ""),
        key_password=options.text("tlsKeyPassword", ""),
        server_hostname=options.text("tlsServerHostname", ""),
        verify=options.flag("tlsVerify", True),
    )
