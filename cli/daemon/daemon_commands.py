"""``pocketmq standalone | namesrv | broker``: options of the daemons.

Lives here: the setting of each option.
"""

from typing import Annotated

import typer

from pocketmq.cli import options


def standalone(
    data_dir: options.DataDir = None,
    namesrv_port: options.NamesrvPort = None,
    broker_port: options.BrokerPort = None,
    host: options.Host = None,
    config: options.Config = None,
    settings: options.Set = None,
    log_format: options.LogFormat = None,
    log_level: options.LogLevel = None,
) -> None:
    """Run a name server and a broker in one process, until SIGTERM or Ctrl-C.

    Prints one line when both serve: "ready namesrv=HOST:PORT broker=HOST:PORT".
    """
    from pocketmq.cli.daemon.daemon import Shape, run_daemon

    given: dict[str, dict[str, object]] = {
        "--data-dir": {"store.store_path_root_dir": data_dir},
        "--namesrv-port": {"namesrv.listen_port": namesrv_port},
        "--broker-port": {"broker.listen_port": broker_port},
        "--host": {"namesrv.bind_address": host, "broker.bind_address": host},
        "--log-format": {"log.format": log_format},
        "--log-level": {"log.level": log_level},
    }
    run_daemon(Shape(namesrv=True, broker=True), given, config, settings or [])


def namesrv(
    namesrv_port: options.NamesrvPort = None,
    host: options.Host = None,
    config: options.Config = None,
    settings: options.Set = None,
    log_format: options.LogFormat = None,
    log_level: options.LogLevel = None,
) -> None:
    """Run a name server. Prints "ready namesrv=HOST:PORT" when it serves."""
    from pocketmq.cli.daemon.daemon import Shape, run_daemon

    given: dict[str, dict[str, object]] = {
        "--namesrv-port": {"namesrv.listen_port": namesrv_port},
        "--host": {"namesrv.bind_address": host},
        "--log-format": {"log.format": log_format},
        "--log-level": {"log.level": log_level},
    }
    run_daemon(Shape(namesrv=True, broker=False), given, config, settings or [])


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
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss", help="Start a master although slaves have more, or cut confirmed messages of a slave."
        ),
    ] = False,
    config: options.Config = None,
    settings: options.Set = None,
    log_format: options.LogFormat = None,
    log_level: options.LogLevel = None,
) -> None:
    """Run a broker. Prints "ready broker=HOST:PORT" when it serves."""
    from pocketmq.cli.daemon.daemon import Shape, run_daemon

    given: dict[str, dict[str, object]] = {
        "--namesrv": {"broker.namesrv_addr": namesrv_addresses},
        "--data-dir": {"store.store_path_root_dir": data_dir},
        "--broker-port": {"broker.listen_port": broker_port},
        "--host": {"broker.bind_address": host},
        "--accept-loss": {"store.accept_loss": accept_loss or None},
        "--log-format": {"log.format": log_format},
        "--log-level": {"log.level": log_level},
    }
    run_daemon(Shape(namesrv=False, broker=True), given, config, settings or [])
