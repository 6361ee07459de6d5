"""Makes the logs of RocketMQ under induced faults that tests read without Java (``tests/pipeline/.../rocketmq_logs``).

    python -m tests.interop.rocketmq_logs OUT [5.3 [send-timeout ...]]

Each case starts RocketMQ's own name server, broker (4.9.7 or 5.3.3) and Java clients (4.9.8 or 5.3.3), induces one
fault from outside, and keeps the files that RocketMQ's logback wrote, cut to a few lines of each shape.

Lives here: the cases, RocketMQ's own log settings, the cut.
"""

import json
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.interop.java_clients import JavaClients, java_clients
from tests.interop.rocketmq_servers import RocketMQServers, ask_json
from tests.interop.toolchain import classpath

SHAPE_LINES_MAX = 6
"""Lines of one shape (digits and addresses left out) that are kept of a file."""
STACK_LINES_MAX = 8
QUESTIONS: dict[int, dict[str, str]] = {28: {}, 26: {}, 907: {}, 317: {"isOrder": "false"}}
"""GET_BROKER_RUNTIME_INFO, GET_BROKER_CONFIG, GET_BROKER_HA_STATUS (5.x), GET_BROKER_CONSUME_STATS."""
KEPT = frozenset(("broker", "store", "storeerror", "stats", "rocketmq_client"))
"""Files that are kept of every case; the others say nothing about most faults."""
EXTRA = {
    "queue-timeout": frozenset(("watermark",)),
    "page-cache-busy": frozenset(("watermark",)),
    "lock-conflict": frozenset(("lock", "filter")),  # 5.3.3's logback.xml sends the lock's lines to filter.log
    "send-timeout": frozenset(("remoting", "watermark", "broker_default")),
}
GET_BROKER_CONFIG = 26
SETTINGS = frozenset(
    (
        *("brokerRole", "brokerName", "brokerId", "transientStorePoolEnable", "transientStorePoolSize", "slaveTimeout"),
        *("osPageCacheBusyTimeOutMills", "flushDiskType", "inSyncReplicas", "haSlaveFallbehindMax", "fileReservedTime"),
        *("diskMaxUsedSpaceRatio", "waitTimeMillsInSendQueue", "waitTimeMillsInPullQueue", "brokerFastFailureEnable"),
        *("sendThreadPoolQueueCapacity", "sendMessageThreadPoolNums", "mappedFileSizeCommitLog"),
        "cleanFileForciblyEnable",
    )
)
"""Settings that are kept of a broker's answer; it has 300."""
APPENDERS_4_9 = {
    "broker": ("RocketmqBroker", "RocketmqCommon", "RocketmqTransaction"),
    "store": ("RocketmqStore",),
    "storeerror": ("RocketmqStoreError",),
    "lock": ("RocketmqRebalanceLock",),
    "watermark": ("RocketmqWaterMark",),
    "protection": ("RocketmqProtection",),
    "stats": ("RocketmqStats",),
    "remoting": ("RocketmqRemoting",),
}
"""Files and loggers of the distribution's conf/logback_broker.xml; the jars do not have it."""
PATTERNS_4_9 = {"watermark": "- %m%n", "protection": "- %m%n", "stats": "%p - %m%n"}


def _logback_4_9() -> str:
    parts = ["<configuration>"]
    for name, loggers in {**APPENDERS_4_9, "broker_default": ()}.items():
        pattern = "%d{yyy-MM-dd HH:mm:ss,GMT+8} " + PATTERNS_4_9.get(name, "%p %t - %m%n")
        file = f"${{user.home}}/logs/rocketmqlogs/{name}.log"
        parts.append(f'<appender name="{name}" class="ch.qos.logback.core.FileAppender"><file>{file}</file>')
        parts.append(f"<encoder><pattern>{pattern}</pattern></encoder></appender>")
        for logger in loggers:
            parts.append(f'<logger name="{logger}" level="INFO" additivity="false">')
            parts.append(f'<appender-ref ref="{name}"/></logger>')
    parts.append('<root level="INFO"><appender-ref ref="broker_default"/></root></configuration>')
    return "".join(parts)


def _own_logback(version: str, kind: str, resource: str, directory: Path) -> list[str]:
    """Return the option with which 5.3 logs as its jar says, not as the other interop tests have it."""
    if version == "4.9":
        return []
    directory.mkdir(parents=True, exist_ok=True)
    for jar in classpath(kind).split(":"):
        with zipfile.ZipFile(jar) as archive:
            if resource in archive.namelist():
                (directory / resource).write_bytes(archive.read(resource))
                return [f"-Drmq.logback.configurationFile={directory / resource}"]
    raise RuntimeError(f"no {resource} in {kind}")


class LoggedServers(RocketMQServers):
    """Servers that log as RocketMQ is delivered: one file for each logger, below ``directory/logs/rocketmqlogs``."""

    def __init__(self, version: str, directory: Path, options: tuple[str, ...], properties: dict[str, object]) -> None:
        super().__init__(version, directory, properties)
        (directory / "home" / "conf" / "logback_broker.xml").write_text(_logback_4_9())
        own = _own_logback(version, self.kind, "rmq.broker.logback.xml", directory)
        self._options = (*own, *options)

    @property
    def logs(self) -> Path:
        """Where RocketMQ writes."""
        return self.directory / "logs" / "rocketmqlogs"

    def signal(self, number: signal.Signals) -> None:
        """Send the broker a signal."""
        self.process("broker").process.send_signal(number)

    def _start(self, part: str, main_class: str, memory: tuple[str, ...]) -> None:
        super()._start(part, main_class, (*memory, *(self._options if part == "broker" else ())))


class Case:
    """One fault: servers, clients, and the logs that are kept."""

    def __init__(self, version: str, name: str, base: Path, out: Path) -> None:
        self.version, self.name, self.base = version, name, base
        self.out = out / version / name

    @contextmanager
    def servers(self, *options: str, **properties: object) -> Iterator[LoggedServers]:
        """Run the name server and a broker; keep the broker's logs."""
        servers = LoggedServers(self.version, self.base / "broker", options, properties)
        try:
            servers.start()
            yield servers
        finally:
            servers.stop()
            self.keep("broker", servers.logs)

    @contextmanager
    def slave(self, master: LoggedServers) -> Iterator[LoggedServers]:
        """Run a slave of a broker; keep its logs."""
        own = {"brokerId": 1, "brokerRole": "SLAVE", "namesrvAddr": master.namesrv}
        slave = LoggedServers(self.version, self.base / "slave", (), own)
        slave.namesrv = master.namesrv
        try:
            slave.start_broker()
            yield slave
        finally:
            slave.signal(signal.SIGCONT)
            slave.stop()
            self.keep("slave", slave.logs)

    @contextmanager
    def clients(self, servers: LoggedServers, name: str) -> Iterator[JavaClients]:
        """Run Java clients; keep their log."""
        directory = self.base / name
        kind = f"client-{self.version}"
        options = _own_logback(self.version, kind, "rmq.client.logback.xml", directory)
        with java_clients(self.version, "JSON", servers.namesrv, directory, *options) as clients:
            yield clients
        self.keep(name, directory / "logs" / "rocketmqlogs")

    def ask(self, servers: LoggedServers, part: str = "broker") -> None:
        """Keep what the broker answers to an operator now: runtime, settings, HA status, lag of groups."""
        answers: dict[str, object] = {}
        for code, fields in QUESTIONS.items():
            try:
                said, remark, body = ask_json(servers.broker, code, fields)
            except (OSError, ValueError, KeyError) as error:
                said, remark, body = -1, str(error), b""
            text = body.decode(errors="replace").replace(str(self.base), "/rocketmq")
            if code == GET_BROKER_CONFIG:
                text = "".join(f"{line}\n" for line in text.splitlines() if line.partition("=")[0] in SETTINGS)
            answers[str(code)] = {"code": said, "remark": remark[:200], "body": text}
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out.parent / f"{self.name}-{part}.json").write_text(json.dumps(answers, indent=1) + "\n")

    def keep(self, part: str, logs: Path) -> None:
        """Copy the log files, cut."""
        for path in sorted(logs.glob("*.log")):
            if path.stem not in KEPT | EXTRA.get(self.name, frozenset()):
                continue
            text = cut(path.read_text(errors="replace"), str(self.base))
            if text:
                self.out.joinpath(part).mkdir(parents=True, exist_ok=True)
                (self.out / part / path.name).write_text(text)


_HEAD = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_DIGITS = re.compile(r"[0-9A-F]{16,}|0x[0-9a-f]+|\d+|msgId=\S+|body=.*")
_QUIET = re.compile(r" (?:DEBUG|INFO)\b")
_TOLD = re.compile(
    r"boot success|\[WATERMARK\]|[Ll]ock|fall behind|HAService|HAClient|PAGECACHERT|NETTY EVENT|start OK"
)
"""What is kept at level INFO; of the rest the first three lines, so that each file shows how it looks."""
_BODY = re.compile(r"(body(?:=|: )\[[^\]]{0,40})[^\]]*")


def cut(text: str, base: str) -> str:
    """Keep the first lines of each shape, short stack traces, no bodies; the folder becomes /rocketmq."""
    seen: Counter[str] = Counter()
    kept: list[str] = []
    keeps, stack, others = False, 0, 0
    for line in text.splitlines():
        if _HEAD.match(line):
            stack = 0
            if _QUIET.search(line[:40]) and not _TOLD.search(line):
                others += " INFO" in line[:40]
                keeps = " INFO" in line[:40] and others <= 3
            else:
                shape = _DIGITS.sub("#", line[19:])[:90]
                if "[WATERMARK]" in line and " Size: 0 SlowTimeMills: 0" not in line:
                    shape = "busy" + shape
                seen[shape] += 1
                keeps = seen[shape] <= SHAPE_LINES_MAX
        else:
            stack += 1
        if keeps and stack <= STACK_LINES_MAX:
            kept.append(_BODY.sub(r"\1", line.replace(base, "/rocketmq"))[:600])
    return "".join(f"{line}\n" for line in kept)


def _sends(clients: JavaClients, verb: str, /, **fields: object) -> None:
    """Send, whatever becomes of it."""
    clients.process.send(verb, **{name: str(value) for name, value in fields.items()})
    clients.process.read(90)


def _load(clients: JavaClients, name: str = "load", **fields: object) -> threading.Thread:
    """Start asynchronous sends in the background."""
    clients.call("producer", name=name, group=f"PID_{name}", timeoutMs=3000, compressOver=1 << 30)
    job = threading.Thread(target=_sends, args=(clients, "send"), kwargs={**fields, "name": name, "mode": "async"})
    job.start()
    return job


def _tries(clients: JavaClients, times: int, name: str = "p", **fields: object) -> None:
    """Send one by one, each with RocketMQ's own retries."""
    clients.call("producer", name=name, group=f"PID_{name}", timeoutMs=fields.pop("timeoutMs", 3000))
    for number in range(times):
        _sends(clients, "send", **{"name": name, "topic": "Orders", "body": f"order-{number}", **fields})


def queue_timeout(case: Case) -> None:
    """One send thread and 1 ms in its queue: [TIMEOUT_CLEAN_QUEUE] in the client's log, [WATERMARK] in the broker's."""
    settings = {"waitTimeMillsInSendQueue": 1, "sendMessageThreadPoolNums": 1, "osPageCacheBusyTimeOutMills": 60_000}
    with (
        case.servers(**settings) as servers,
        case.clients(servers, "client") as clients,
        case.clients(servers, "load") as others,
    ):
        clients.call("producer", name="first", group="PID_first", timeoutMs=3000)
        _sends(clients, "send", name="first", topic="Orders", body="creates the topic", count=8)
        time.sleep(8)  # the first [WATERMARK] comes 10 s after the start
        job = _load(others, topic="Orders", bodyBytes=4000, count=40_000)
        _tries(clients, 600)
        job.join()


def page_cache_busy(case: Case) -> None:
    """The broker's process is stopped in the midst of appends of 3 MB: the append lock is held for seconds."""
    settings = {"osPageCacheBusyTimeOutMills": 1, "flushDiskType": "ASYNC_FLUSH", "mappedFileSizeCommitLog": 16 << 20}
    with (
        case.servers(**settings) as servers,
        case.clients(servers, "client") as clients,
        case.clients(servers, "load") as others,
    ):
        _tries(clients, 1)
        for number in range(20):
            job = _load(others, name=f"load{number}", topic="Orders", bodyBytes=3_000_000, count=30)
            time.sleep(0.15 + 0.02 * number)
            servers.signal(signal.SIGSTOP)
            time.sleep(1.3)
            servers.signal(signal.SIGCONT)
            _tries(clients, 3, name=f"p{number}")
            job.join()
            case.ask(servers)


def pool_deficient(case: Case) -> None:
    """A write-buffer pool of one buffer: no buffer is free for the second file, every send gets [REJECTREQUEST]."""
    settings = {"transientStorePoolEnable": "true", "transientStorePoolSize": 1, "mappedFileSizeCommitLog": 1 << 20}
    with case.servers(**settings) as servers, case.clients(servers, "client") as clients:
        _tries(clients, 12, count=4, bodyBytes=90_000)
        case.ask(servers)


def slave_stopped(case: Case) -> None:
    """A synchronous master whose slave's process is stopped, then killed: FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE."""
    settings = {"brokerRole": "SYNC_MASTER", "syncFlushTimeout": 2000, "slaveTimeout": 2000}
    settings |= {"inSyncReplicas": 2, "totalReplicas": 2}  # 5.3 waits for no slave otherwise
    with case.servers(**settings) as master, case.clients(master, "client") as clients:
        with case.slave(master) as slave:
            clients.call("producer", name="first", group="PID_first")
            _sends(clients, "send", name="first", topic="Orders", body="replicated", count=20)
            time.sleep(6)  # a slave of 4.9 reports 5 s after it connected
            slave.signal(signal.SIGSTOP)
            for number in range(3):
                _sends(clients, "send", name="first", topic="Orders", body=f"late-{number}")
            case.ask(master)
            clients.call("producer", name="short", group="PID_short", timeoutMs=1000)
            for number in range(3):
                _sends(clients, "send", name="short", topic="Orders", body=f"too-late-{number}")
            slave.signal(signal.SIGCONT)
            time.sleep(1)
            slave.kill_broker()
            slave.start_broker()
            time.sleep(6)
        for number in range(5):
            _sends(clients, "send", name="first", topic="Orders", body=f"alone-{number}")
        case.ask(master, "alone")


def lock_conflict(case: Case) -> None:
    """The JVM of an ordered consumer is killed, so it unlocks nothing; another one waits for its locks."""
    with (
        case.servers("-Drocketmq.broker.rebalance.lockMaxLiveTime=30000") as servers,
        case.clients(servers, "client") as clients,
    ):
        _tries(clients, 8, mode="sync")
        with java_clients(case.version, "JSON", servers.namesrv, case.base / "killed") as killed:
            killed.call("push", name="a", group="CID_orders", topic="Orders", orderly="true")
            killed.received("a", 4)
            clients.call("push", name="b", group="CID_orders", topic="Orders", orderly="true")
            time.sleep(2)
            killed.process.kill()
        time.sleep(50)  # clients lock again every 20 s
        _tries(clients, 8, name="more")
        case.ask(servers)


def disk_full(case: Case) -> None:
    """The disk of the test machine, used above 35 %, counts as full: RocketMQ takes no level below that."""
    options = (
        "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.35",
        "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.30",
    )
    with case.servers(*options, diskMaxUsedSpaceRatio=10) as servers, case.clients(servers, "client") as clients:
        _tries(clients, 3)
        time.sleep(75)  # the first look at the disk comes after 60 s
        _tries(clients, 4, name="late")
        case.ask(servers)


def send_timeout(case: Case) -> None:
    """The broker's process is stopped for longer than sends wait, then killed: what a Java client logs."""
    with case.servers() as servers, case.clients(servers, "client") as clients:
        _tries(clients, 2)
        clients.call("producer", name="short", group="PID_short", timeoutMs=1000)
        servers.signal(signal.SIGSTOP)
        for number in range(3):
            _sends(clients, "send", name="short", topic="Orders", body=f"late-{number}")
        servers.signal(signal.SIGCONT)
        time.sleep(1)
        servers.kill_broker()
        for number in range(3):
            _sends(clients, "send", name="short", topic="Orders", body=f"away-{number}")
        servers.start_broker()


CASES: dict[str, Callable[[Case], None]] = {
    "queue-timeout": queue_timeout,
    "page-cache-busy": page_cache_busy,
    "pool-deficient": pool_deficient,
    "slave-stopped": slave_stopped,
    "lock-conflict": lock_conflict,
    "disk-full": disk_full,
    "send-timeout": send_timeout,
}


def main(words: list[str]) -> None:
    """Make the cases of both versions, or those that are named."""
    out, versions, names = Path(words[0]).absolute(), words[1:2] or ["4.9", "5.3"], words[2:] or list(CASES)
    for version in versions:
        for name in names:
            shutil.rmtree(out / version / name, ignore_errors=True)
            began_s = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="rocketmq-logs-") as base:
                try:
                    CASES[name](Case(version, name, Path(base), out))
                except AssertionError as error:
                    print(f"{version} {name}: {error}", flush=True)
            print(f"{version} {name}: {time.monotonic() - began_s:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
