"""Which processes ``pocketmq cluster --masters N`` runs: names, ports, directories, arguments.

Lives here: ``MastersPlan`` and its limits. It starts nothing.

Ports: broker number i of all brokers (the first master, its slaves, the second master, …) listens on ``broker_port +
10 * i``; the next port is its HA port. Its metrics port, if there are any, is ``metrics_port + 10 * i``. Directories: a
broker's store is ``DIR/NAME``, the name server's epochs are in ``DIR/namesrv``: the same as without ``--masters``.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pocketmq.common.errors import ConfigError

MASTERS_MAX: Final = 64
SLAVES_MAX: Final = 15
"""Of one master: ``store.total_replicas`` is at most 16."""
PORT_STEP: Final = 10
PORT_MAX: Final = 65_535
NAMESRV: Final = "namesrv"
STORE_NAME: Final = re.compile(r"broker-[a-z]+-[0-9]+")
MASTER_ROLES: Final = ("ASYNC_MASTER", "SYNC_MASTER")
ROLE_KEY: Final = "store.broker_role"
CHOSEN_HERE: Final[Mapping[str, str]] = {
    "broker.broker_name": "each master has its own name",
    "broker.broker_id": "0 is a master, its slaves count from 1",
    "broker.listen_port": "give the first port with --broker-port",
    "broker.bind_address": "give the address with --host",
    "broker.namesrv_addr": "the brokers register with the name server of this cluster",
    "store.store_path_root_dir": "give the directory of all stores with --data-dir",
    "store.ha_listen_port": "it is the next port after the broker's",
    "store.ha_master_address": "slaves find their master through the name server",
    "metrics.listen_port": "give the first port with --metrics-port",
    "log.file": "the log of all processes is the standard error of this command",
}
"""Settings that cannot be the same for all brokers, with what to do instead."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the processes listen. Port 0: any free port, for each of them; ``metrics_port`` 0: no metrics."""

    host: str
    namesrv_port: int
    broker_port: int
    metrics_port: int = 0


@dataclass(frozen=True, slots=True)
class PlannedProcess:
    """One process. ``stage``: those of a lower one serve before it starts; ``port`` 0: any free port.

    ``arguments`` follow ``pocketmq`` and lack what is known only at the start: see ``command``.
    """

    name: str
    role: str
    stage: int
    port: int
    directory: Path
    arguments: tuple[str, ...]

    def command(self, namesrv: str, port: int | None = None) -> list[str]:
        """Return all arguments, with the name server's address, and the port that a former life got."""
        chosen = self.port if port is None else port
        if self.name == NAMESRV:
            return [*self.arguments, "--namesrv-port", str(chosen)]
        return [*self.arguments, "--namesrv", namesrv, "--broker-port", str(chosen)]


@dataclass(frozen=True, slots=True)
class MastersPlan:
    """All processes, in the order of their ports: the name server first."""

    masters: int
    slaves_per_master: int
    directory: Path
    processes: tuple[PlannedProcess, ...]

    def left_out(self, names: Sequence[str]) -> list[str]:
        """Return those of ``names``, entries of the data directory, that are stores of brokers beyond this plan."""
        planned = {process.name for process in self.processes}
        return sorted(name for name in names if STORE_NAME.fullmatch(name) and name not in planned)


def plan_masters(
    masters: int, slaves_per_master: int, directory: Path, addresses: Addresses, settings: Sequence[str]
) -> MastersPlan:
    """Return the plan. ``settings``: KEY=VALUE for every broker. Raises ``ConfigError`` for what cannot be."""
    _check_count("--masters", masters, 1, MASTERS_MAX)
    _check_count("--slaves-per-master", slaves_per_master, 0, SLAVES_MAX)
    role, others = _master_role(settings, slaves_per_master)
    _check_ports(masters * (1 + slaves_per_master), addresses)
    processes = [_name_server(directory, addresses, others)]
    for master in range(masters):
        for broker_id in range(1 + slaves_per_master):
            number = master * (1 + slaves_per_master) + broker_id
            values = {
                "broker.broker_name": f"broker-{letters(master)}",
                "broker.broker_id": str(broker_id),
                ROLE_KEY: "SLAVE" if broker_id else role,
                "metrics.listen_port": str(_port(addresses.metrics_port, number)),
            }
            if slaves_per_master:
                values["store.total_replicas"] = str(1 + slaves_per_master)
            if addresses.broker_port == 0:
                values["store.ha_listen_port"] = "-1"
            name = f"broker-{letters(master)}-{broker_id}"
            words = ["broker", "--data-dir", str(directory / name), "--host", addresses.host]
            words += [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
            words += [word for each in others for word in ("--set", each)]
            port = _port(addresses.broker_port, number)
            is_slave = bool(broker_id)
            process = PlannedProcess(
                name, "SLAVE" if is_slave else role, 1 + is_slave, port, directory / name, tuple(words)
            )
            processes.append(process)
    return MastersPlan(masters, slaves_per_master, directory, tuple(processes))


def letters(number: int) -> str:
    """Return a, b, … z, aa, ab, … for 0, 1, …"""
    text = ""
    number += 1
    while number:
        number, letter = divmod(number - 1, 26)
        text = chr(ord("a") + letter) + text
    return text


def _name_server(directory: Path, addresses: Addresses, settings: Sequence[str]) -> PlannedProcess:
    epochs = directory / NAMESRV
    words = ["namesrv", "--host", addresses.host, "--set", f"namesrv.epoch_store_dir={epochs}"]
    words += [word for each in settings if each.strip().startswith("log.") for word in ("--set", each)]
    return PlannedProcess(NAMESRV, "NAME_SERVER", 0, addresses.namesrv_port, epochs, tuple(words))


def _port(first: int, number: int) -> int:
    return first + number * PORT_STEP if first else 0


def _check_count(option: str, count: int, low: int, high: int) -> None:
    if not low <= count <= high:
        raise ConfigError("bad options", why=f"{option} {count}", hint=f"from {low} to {high}")


def _master_role(settings: Sequence[str], slaves_per_master: int) -> tuple[str, list[str]]:
    """Return the role of the masters and the settings without it: slaves must not get it."""
    role, others = "ASYNC_MASTER", []
    for each in settings:
        key, _, value = (part.strip() for part in each.partition("="))
        if key in CHOSEN_HERE:
            raise ConfigError("bad options", why=f"--set {each} for all brokers", hint=CHOSEN_HERE[key])
        if key == ROLE_KEY:
            role = value
        else:
            others.append(each)
    if role not in MASTER_ROLES:
        hint = f"the role of the masters is {' or '.join(MASTER_ROLES)}; --slaves-per-master adds slaves"
        raise ConfigError("bad options", why=f"--set {ROLE_KEY}={role}", hint=hint)
    if role == "SYNC_MASTER" and not slaves_per_master:
        raise ConfigError(
            "bad options",
            why="a synchronous master without a slave answers every send with SLAVE_NOT_AVAILABLE",
            hint="add --slaves-per-master 1, or leave the role ASYNC_MASTER",
        )
    return role, others


def _check_ports(brokers: int, addresses: Addresses) -> None:
    """Refuse ports beyond 65,535, and two uses of one port. Ports of the system's choice do not collide."""
    uses: dict[int, str] = {}

    def use(port: int, what: str) -> None:
        if port in uses:
            hint = "choose other values for --namesrv-port, --broker-port, --metrics-port"
            raise ConfigError("bad options", why=f"port {port} would be {uses[port]} and {what}", hint=hint)
        uses[port] = what

    if addresses.namesrv_port:
        use(addresses.namesrv_port, "the name server's")
    for option, first, extra in (
        ("--broker-port", addresses.broker_port, 1),
        ("--metrics-port", addresses.metrics_port, 0),
    ):
        if not first:
            continue
        highest = _port(first, brokers - 1) + extra
        if highest > PORT_MAX:
            raise ConfigError(
                "bad options",
                why=f"{option} {first} with {brokers} brokers would need port {highest}",
                hint=f"at most {PORT_MAX - extra - (brokers - 1) * PORT_STEP}",
            )
    for number in range(brokers):
        if addresses.metrics_port:
            use(_port(addresses.metrics_port, number), f"the metrics port of broker {number + 1}")
        if addresses.broker_port:
            port = _port(addresses.broker_port, number)
            use(port, f"that of broker {number + 1}")
            use(port + 1, f"the HA port of broker {number + 1}")
