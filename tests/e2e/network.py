"""Hosts for one test: network namespaces on one bridge, with links that can be cut in one direction.

Lives here: ``Network`` and its ``Host``: made and removed by the test, names and addresses of its own.

A cut is silent: the sender keeps a permanent neighbor entry with an unused hardware address, so that packets
leave and never arrive, as with a dead switch; connections stay open on both sides until they notice.
``tc`` with netem is missing in many containers, a neighbor table is not.
"""

import contextlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

NOWHERE: Final = "02:de:ad:00:00:01"
"""A hardware address that no host has."""
HUB: Final = "hub"
"""The test's own side: its name server and its clients run there, on the bridge."""
INTERFACE: Final = "eth0"


def why_not() -> str:
    """Return why namespaces cannot be made here, or an empty string if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need the command ip (Debian: iproute2)"
    probe = f"pmqt{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"ip netns add failed: {made.stderr.strip()}"
    bridge = subprocess.run(
        ["ip", "link", "add", f"{probe}b", "type", "bridge"], capture_output=True, text=True, check=False
    )
    subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False)
    if bridge.returncode:
        return f"no bridge can be made: {bridge.stderr.strip()}"
    subprocess.run(["ip", "link", "del", f"{probe}b"], capture_output=True, check=False)
    return ""


@dataclass(frozen=True, slots=True)
class Host:
    """One machine: ``prefix`` goes before a command that runs on it."""

    name: str
    address: str
    hardware: str
    namespace: str
    interface: str

    @property
    def prefix(self) -> list[str]:
        """Return the words that run a command on this host; the process keeps its id."""
        return ["ip", "netns", "exec", self.namespace] if self.namespace else []


class Network:
    """Hosts on one bridge. ``cut(a, b)`` stops packets from ``a`` to ``b`` only; ``heal()`` repairs everything."""

    def __init__(self, *names: str) -> None:
        number = os.getpid() % 16_384
        self._bridge = f"pmqb{number}"
        net = f"10.{128 + number // 128 % 128}.{number % 128}"
        self.hosts: dict[str, Host] = {
            HUB: Host(HUB, f"{net}.254", f"02:00:00:00:{number // 256:02x}:fe", "", self._bridge)
        }
        for at, name in enumerate(names, 1):
            hardware = f"02:00:00:{at:02x}:{number // 256:02x}:{number % 256:02x}"
            self.hosts[name] = Host(name, f"{net}.{at}", hardware, f"pmq{number}-{name}", INTERFACE)

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def cut(self, source: str, target: str) -> None:
        """Drop every packet from ``source`` to ``target``; the other direction still works."""
        self._lead(self.hosts[source], self.hosts[target], NOWHERE)

    def cut_both(self, one: str, other: str) -> None:
        """Drop every packet between two hosts."""
        self.cut(one, other)
        self.cut(other, one)

    def isolate(self, name: str) -> None:
        """Drop every packet from and to a host."""
        for other in self.hosts:
            if other != name:
                self.cut_both(name, other)

    def heal(self) -> None:
        """Repair all links."""
        for source in self.hosts.values():
            for target in self.hosts.values():
                if source is not target:
                    self._lead(source, target, target.hardware)

    def _make(self) -> None:
        hub = self.hosts[HUB]
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("link", "set", self._bridge, "address", hub.hardware)
        _ip("addr", "add", f"{hub.address}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for at, host in enumerate(self._others(), 1):
            _ip("netns", "add", host.namespace)
            port = f"{self._bridge}p{at}"
            _ip("link", "add", port, "type", "veth", "peer", "name", INTERFACE, "netns", host.namespace)
            _ip("link", "set", port, "master", self._bridge)
            _ip("link", "set", port, "up")
            inside = ("-n", host.namespace)
            _ip(*inside, "link", "set", INTERFACE, "address", host.hardware)
            _ip(*inside, "addr", "add", f"{host.address}/24", "dev", INTERFACE)
            _ip(*inside, "link", "set", INTERFACE, "up")
            _ip(*inside, "link", "set", "lo", "up")
        self.heal()

    def _remove(self) -> None:
        for at, host in enumerate(self._others(), 1):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("link", "del", f"{self._bridge}p{at}")  # the kernel removes the links of a namespace later
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "del", host.namespace)
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("link", "del", self._bridge)

    def _others(self) -> list[Host]:
        return [host for host in self.hosts.values() if host.namespace]

    def _lead(self, source: Host, target: Host, hardware: str) -> None:
        inside = ("-n", source.namespace) if source.namespace else ()
        _ip(
            *inside, "neigh", "replace", target.address, "lladdr", hardware, "dev", source.interface, "nud", "permanent"
        )


def _ip(*arguments: str) -> None:
    try:
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        error.add_note(error.stderr.strip())
        raise
