"""RocketMQ's own name server and broker as processes on loopback, for tests of our side of the wire.

    with rocketmq_servers("5.3", tmp_path, flushDiskType="SYNC_FLUSH") as servers:
        servers.namesrv                 # "127.0.0.1:41234"
        servers.kill_broker()           # SIGKILL; stop_broker() is SIGTERM; start_broker() starts it again

Lives here: their files, ports, start and end.
"""

import json
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.interop.toolchain import JavaProcess, java_command, require_java

START_S = 180.0
NAMESRV_MAIN = "org.apache.rocketmq.namesrv.NamesrvStartup"
BROKER_MAIN = "org.apache.rocketmq.broker.BrokerStartup"
DISK_MAY_BE_FULL = (
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98",
)
"""A test machine's disk may be used to 90 %, where RocketMQ takes no message any more."""
GET_BROKER_CLUSTER_INFO = 106
BROKER_NAME = "rocketmq-a"
CLUSTER_NAME = "InteropCluster"
LOGBACK_4_9 = """<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>{file}</file>
    <encoder><pattern>%d %p %t %c{{0}} - %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="file"/></root>
</configuration>
"""


def free_ports(count: int) -> list[int]:
    """Return unused ports of the loopback address, each with unused neighbours on both sides. RocketMQ's broker listens
    at its port, at port - 2 (VIP channel) and, by default, at port + 1 (HA).
    """
    ports: list[int] = []
    for _ in range(500):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port: int = server.getsockname()[1]
        if any(abs(port - other) < 5 for other in ports) or not all(_is_free(port + step) for step in (-2, -1, 1, 2)):
            continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise RuntimeError("no free ports")


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except (OSError, OverflowError):
        return False
    return True


def ask_json(
    address: str,
    code: int,
    ext_fields: dict[str, str] | None = None,
    timeout_s: float = 5,
    tls: ssl.SSLContext | None = None,
    body: bytes = b"",
) -> tuple[int, str, bytes]:
    """Send one request with a JSON header over a separate connection; return (code, remark, body) of the answer."""
    answer, body = _ask(address, code, ext_fields or {}, timeout_s, tls, body)
    return answer["code"], answer.get("remark") or "", body


def ask_offset(address: str, code: int, ext_fields: dict[str, str]) -> int:
    """Ask for an offset; -1 if the broker has none."""
    answer, _ = _ask(address, code, ext_fields, 5)
    return int(answer["extFields"]["offset"]) if answer["code"] == 0 else -1


def _ask(
    address: str,
    code: int,
    ext_fields: dict[str, str],
    timeout_s: float,
    tls: ssl.SSLContext | None = None,
    content: bytes = b"",
) -> tuple[dict[str, Any], bytes]:
    host, port = address.rsplit(":", 1)
    header = {"code": code, "language": "JAVA", "version": 409, "opaque": 1, "flag": 0, "extFields": ext_fields}
    text = json.dumps(header).encode()
    with ExitStack() as stack:
        connection = stack.enter_context(socket.create_connection((host, int(port)), timeout_s))
        if tls is not None:
            connection = stack.enter_context(tls.wrap_socket(connection, server_hostname=host))
        connection.sendall(struct.pack(">II", 4 + len(text) + len(content), len(text)) + text + content)
        with connection.makefile("rb") as stream:
            length, header_length = struct.unpack(">II", stream.read(8))
            answer = json.loads(stream.read(header_length & 0xFFFFFF))
            body = stream.read(length - 4 - (header_length & 0xFFFFFF))
    return answer, body


def _write_properties(path: Path, properties: dict[str, object]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))


class RocketMQServers:
    """One name server and one broker of one version; the broker can be stopped and restarted on its store.

    ``refusals``: codes that the broker answers strangers with, where it has access control. ``tls``: how to ask both,
    where they take nothing else; ``java_options``: for both.
    """

    def __init__(
        self,
        version: str,
        directory: Path,
        properties: dict[str, object],
        *,
        refusals: tuple[int, ...] = (),
        tls: ssl.SSLContext | None = None,
        java_options: tuple[str, ...] = (),
    ) -> None:
        """Start nothing yet. ``version``: "4.9" or "5.3"."""
        self._refusals, self.tls, self._java_options = refusals, tls, java_options
        self.version, self.directory = version, directory
        self.kind = f"server-{version}"
        self.cluster, self.broker_name = CLUSTER_NAME, BROKER_NAME
        self.store = directory / "store"
        namesrv_port, broker_port = free_ports(2)
        self.namesrv, self.broker = f"127.0.0.1:{namesrv_port}", f"127.0.0.1:{broker_port}"
        self._processes: dict[str, JavaProcess] = {}
        (directory / "home" / "conf").mkdir(parents=True, exist_ok=True)
        for part in ("namesrv", "broker"):
            text = LOGBACK_4_9.format(file=directory / f"{part}.log")
            (directory / "home" / "conf" / f"logback_{part}.xml").write_text(text)
        _write_properties(
            directory / "namesrv.properties",
            {
                "listenPort": namesrv_port,
                "bindAddress": "127.0.0.1",
                "kvConfigPath": directory / "kvConfig.json",
                "configStorePath": directory / "namesrv-stored.properties",
            },
        )
        _write_properties(
            directory / "broker.properties",
            {
                "brokerClusterName": CLUSTER_NAME,
                "brokerName": BROKER_NAME,
                "brokerId": 0,
                "brokerIP1": "127.0.0.1",
                "brokerIP2": "127.0.0.1",
                "bindAddress": "127.0.0.1",
                "listenPort": broker_port,
                "haListenPort": broker_port + 1,
                "namesrvAddr": self.namesrv,
                "storePathRootDir": self.store,
                "storePathCommitLog": self.store / "commitlog",
                "mappedFileSizeCommitLog": 4 << 20,
                "mappedFileSizeConsumeQueue": 20 * 2000,
                "maxHashSlotNum": 2000,
                "maxIndexNum": 8000,
                "timerWheelEnable": "true",
                "timerRocksDBEnable": "false",
                "mappedFileSizeTimerLog": 1 << 20,
                "autoCreateTopicEnable": "true",
                "autoCreateSubscriptionGroup": "true",
                "enablePropertyFilter": "true",
                "deleteWhen": "04",
                "diskMaxUsedSpaceRatio": 95,
                "flushDiskType": "ASYNC_FLUSH",
                "brokerRole": "ASYNC_MASTER",
                "registerNameServerPeriod": 10000,
            }
            | properties,
        )

    def start(self) -> None:
        """Start both and wait until the broker is registered."""
        self._start("namesrv", NAMESRV_MAIN, ("-Xms64m", "-Xmx256m"))
        self._wait("namesrv", lambda: self._asked(self.namesrv, GET_BROKER_CLUSTER_INFO)[0] == 0)
        self.start_broker()

    def start_broker(self) -> None:
        """Start the broker, also again on its store, and wait until it answers and is registered."""
        self._start("broker", BROKER_MAIN, ("-Xms256m", "-Xmx512m", "-XX:MaxDirectMemorySize=256m", *DISK_MAY_BE_FULL))

        def is_registered() -> bool:
            answers = self._asked(self.broker, 28)[0] in (0, *self._refusals)
            return answers and self.broker.encode() in self._asked(self.namesrv, GET_BROKER_CLUSTER_INFO)[2]

        self._wait("broker", is_registered)

    def _asked(self, address: str, code: int) -> tuple[int, str, bytes]:
        return ask_json(address, code, tls=self.tls)

    def process(self, part: str) -> JavaProcess:
        """Return the process of "namesrv" or "broker"."""
        return self._processes[part]

    def kill_broker(self) -> None:
        """End the broker with SIGKILL."""
        self._processes["broker"].kill()
        self._processes.pop("broker").stop()

    def kill_and_restart(self) -> None:
        """End the broker with SIGKILL, and start it on its store."""
        self.kill_broker()
        self.start_broker()

    def stop_broker(self) -> None:
        """End the broker in order: it flushes and closes its store."""
        self._processes.pop("broker").stop()

    def stop(self) -> None:
        """End the running processes, the broker first."""
        for part in ("broker", "namesrv"):
            process = self._processes.pop(part, None)
            if process is not None:
                process.stop()

    def _start(self, part: str, main_class: str, memory: tuple[str, ...]) -> None:
        home = self.directory / "home"
        options = (*memory, *self._java_options, f"-Drocketmq.home.dir={home}", f"-Duser.dir={self.directory}")
        command = java_command(
            self.kind, main_class, self.directory, options, ("-c", str(self.directory / f"{part}.properties"))
        )
        self._processes[part] = JavaProcess(command, self.directory, {"ROCKETMQ_HOME": str(home)})

    def _wait(self, part: str, is_up: object) -> None:
        assert callable(is_up)
        process, give_up_s = self._processes[part], time.monotonic() + START_S
        while True:
            if process.process.poll() is not None:
                raise process.failure(f"the {part} ended with {process.process.returncode} while it started")
            try:
                if is_up():
                    return
            except (OSError, ValueError, struct.error):
                pass
            if time.monotonic() > give_up_s:
                raise process.failure(f"the {part} is not up after {START_S:g} s")
            time.sleep(0.1)


@contextmanager
def rocketmq_servers(version: str, directory: Path, **broker_properties: object) -> Iterator[RocketMQServers]:
    """Run a name server and a broker of RocketMQ "4.9" or "5.3" until the block ends.

    ``broker_properties``: RocketMQ's own names (``flushDiskType="SYNC_FLUSH"``), beside or instead of the ones here.
    The store is ``directory / "store"``; logs and output files are below ``directory``.
    """
    require_java()
    directory.mkdir(parents=True, exist_ok=True)
    with running(RocketMQServers(version, directory, broker_properties)) as servers:
        yield servers


@contextmanager
def running(servers: RocketMQServers) -> Iterator[RocketMQServers]:
    """Start servers, and stop them when the block ends."""
    try:
        servers.start()
        yield servers
    finally:
        servers.stop()
