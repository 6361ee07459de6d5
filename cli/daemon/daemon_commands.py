"""``pocketmq standalone | namesrv | broker``: options of the daemons.

Lives here: the commands as typer shows them; ``daemon_settings`` has the settings of their options.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from pocketmq.cli import options
from pocketmq.cli.daemon.daemon_settings import given_settings


def standalone(
    data_dir: options.DataDir = None,
    namesrv_port: options.NamesrvPort = None,
    broker_port: options.BrokerPort = None,
    host: options.Host = None,
    advertise: options.Advertise = None,
    is_open: options.Open = False,
    metrics_port: options.MetricsPort = None,
    dashboard_port: options.DashboardPort = None,
    profile: options.Profile = None,
    config: options.Config = None,
    settings: options.Set = None,
    log_format: options.LogFormat = None,
    log_level: options.LogLevel = None,
) -> None:
    """Run a name server and a broker in one process, until SIGTERM or Ctrl-C.

    Prints one line when both serve: "ready namesrv=HOST:PORT broker=HOST:PORT".
    """
    values = {"--data-dir": data_dir, "--namesrv-port": namesrv_port, "--broker-port": broker_port, "--host": host}
    values |= {"--advertise": advertise, "--open": is_open or None}
    values |= {"--metrics-port": metrics_port, "--dashboard-port": dashboard_port}
    values |= {"--log-format": log_format, "--log-level": log_level}
    _run("standalone", values, config, settings, profile)


def namesrv(
    namesrv_port: options.NamesrvPort = None,
    data_dir: Annotated[
        str | None,
        typer.Option(
            "--data-dir",
            "-d",
            metavar="DIR",
            help="Keeps the epochs of replicated brokers in DIR/namesrv-PORT.  [default: ./pocketmq-data]",
        ),
    ] = None,
    host: options.Host = None,
    is_open: options.Open = False,
    metrics_port: options.NamesrvMetricsPort = None,
    config: options.Config = None,
    settings: options.Set = None,
    log_format: options.LogFormat = None,
    log_level: options.LogLevel = None,
) -> None:
    """Run a name server. Prints "ready namesrv=HOST:PORT" when it serves."""
    values = {"--data-dir": data_dir, "--namesrv-port": namesrv_port, "--host": host}
    values |= {"--open": is_open or None, "--metrics-port": metrics_port}
    values |= {"--log-format": log_format, "--log-level": log_level}
    _run("namesrv", values, config, settings)


def broker(
    namesrv_addresses: Annotated[
        str | None,
        typer.Option(
            "--namesrv", envvar="POCKETMQ_NAMESRV", metavar="HOST:PORT[;…]", help="Name servers to register with."
        ),
    ] = None,
    data_dir: options.DataDir = None,
    broker_port: options.BrokerPort = None,
    host: options.Host = None,
    advertise: options.Advertise = None,
    is_open: options.Open = False,
    metrics_port: options.MetricsPort = None,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss", help="Start a master although slaves have more, or cut confirmed messages of a slave."
        ),
    ] = False,
    profile: options.Profile = None,
    config: options.Config = None,
    settings: options.Set = None,
    log_format: options.LogFormat = None,
    log_level: options.LogLevel = None,
) -> None:
    """Run a broker. Prints "ready broker=HOST:PORT" when it serves."""
    values: dict[str, object] = {
        "--namesrv": namesrv_addresses,
        "--data-dir": data_dir,
        "--broker-port": broker_port,
        "--host": host,
        "--advertise": advertise,
        "--open": is_open or None,
        "--metrics-port": metrics_port,
    }
    values |= {"--log-format": log_format, "--log-level": log_level}
    _run("broker", {**values, "--accept-loss": accept_loss or None}, config, settings, profile)


def _run(
    command: str,
    values: Mapping[str, object],
    config: str | None,
    settings: Sequence[str] | None,
    profile: str | None = None,
) -> None:
    from pocketmq.cli.daemon.daemon import Shape, run_daemon

    shape = Shape(namesrv=command != "broker", broker=command != "namesrv")
    run_daemon(shape, given_settings(command, values), config, settings or [], profile)
