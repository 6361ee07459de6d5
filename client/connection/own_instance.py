"""The instance behind a producer, consumer or admin: the one that was given, or one of its own.

Lives here: ``instance_for``.
"""

from collections.abc import Sequence

from pocketmq.client.connection.instance import ClientInstance
from pocketmq.client.telemetry.switch import TelemetryArgument
from pocketmq.common.errors import ConfigError
from pocketmq.remoting.security.client_security import TLSArgument
from pocketmq.remoting.security.credentials import Credentials


def instance_for(
    instance: ClientInstance | None,
    namesrv: str | Sequence[str],
    credentials: Credentials | None,
    tls: TLSArgument,
    telemetry: TelemetryArgument = None,
) -> ClientInstance:
    """Return ``instance``, or a new one. Raise ``ConfigError`` if both an instance and what belongs to it are given."""
    if instance is None:
        return ClientInstance(namesrv, credentials=credentials, tls=tls, telemetry=telemetry)
    if telemetry is not None:
        raise ConfigError(
            "client refused",
            why="telemetry= is that of the instance, which is given too",
            hint="ClientInstance(namesrv, telemetry=...)",
        )
    if credentials is not None or tls:
        raise ConfigError(
            "client refused",
            why="credentials= and tls= are those of the instance, which is given too",
            hint="ClientInstance(namesrv, credentials=..., tls=...)",
        )
    return instance
