"""Which settings the options of ``pocketmq standalone | namesrv | broker`` give.

Lives here: one table for both parsers of these commands: typer's (``daemon_commands``) and the short one
(``plain_arguments``).
"""

from collections.abc import Mapping
from typing import Final

_OPEN: Final = {"--open": ("auth.open",)}
_METRICS: Final = {"--metrics-port": ("metrics.listen_port",)}
_LOG: Final = {"--log-format": ("log.format",), "--log-level": ("log.level",)}
_DATA_DIR: Final = {"--data-dir": ("store.store_path_root_dir",)}
_STORE: Final = {**_DATA_DIR, "--broker-port": ("broker.listen_port",), "--advertise": ("broker.advertise",)}
_NAMESRV: Final = {"--namesrv-port": ("namesrv.listen_port",)}

SETTINGS_OF: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "standalone": {
        **_STORE,
        **_NAMESRV,
        "--host": ("namesrv.bind_address", "broker.bind_address"),
        **_METRICS,
        "--dashboard-port": ("dashboard.listen_port",),
        **_OPEN,
        **_LOG,
    },
    "namesrv": {**_DATA_DIR, **_NAMESRV, "--host": ("namesrv.bind_address",), **_OPEN, **_METRICS, **_LOG},
    "broker": {
        "--namesrv": ("broker.namesrv_addr",),
        **_STORE,
        "--host": ("broker.bind_address",),
        **_OPEN,
        **_METRICS,
        "--accept-loss": ("store.accept_loss",),
        **_LOG,
    },
}
"""Command → option → settings that get its value."""


def given_settings(command: str, values: Mapping[str, object]) -> dict[str, dict[str, object]]:
    """Return option → setting → value of all options of a command; None where an option was not given."""
    return {
        option: {setting: values.get(option) for setting in settings}
        for option, settings in SETTINGS_OF[command].items()
    }
