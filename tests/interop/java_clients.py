"""``java/Clients.java`` from Python: RocketMQ's clients of one version and one header form.

Lives here: ``JavaClients`` and its starter.
"""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.interop.toolchain import JavaProcess, start_java

JAVA_CLIENTS = ("4.9-JSON", "4.9-ROCKETMQ", "5.3-JSON", "5.3-ROCKETMQ")
"""Version and ``rocketmq.serialize.type`` of the JVMs in which the tests of ``test_java_*`` run."""
Row = dict[str, Any]
_numbers = itertools.count(1)


class JavaClients:
    """Producers and consumers of one JVM, each with a name; every method is one command of ``Clients.java``."""

    def __init__(self, process: JavaProcess, version: str, serialize: str) -> None:
        """``version``: "4.9" or "5.3"; ``serialize``: "JSON" or "ROCKETMQ"."""
        self.process, self.version, self.serialize = process, version, serialize
        self._producer = ""

    def __repr__(self) -> str:
        return f"{self.version}-{self.serialize}"

    def call(self, verb: str, /, timeout_s: float = 40, **fields: Any) -> Row:
        """Send one command and return its answer; double underscores in names become dots."""
        return self.process.call(
            verb, timeout_s=timeout_s, **{name.replace("__", "."): value for name, value in fields.items()}
        )

    def fails(self, verb: str, /, timeout_s: float = 40, **fields: Any) -> str:
        """Send one command that has to fail; return its error."""
        self.process.send(verb, **{name.replace("__", "."): value for name, value in fields.items()})
        answer = self.process.read(timeout_s)
        assert "failed" in answer, answer
        return str(answer["failed"])

    @contextmanager
    def started(self, verb: str, /, **fields: Any) -> Iterator[str]:
        """Start a producer or consumer (``verb``) under a new name, and shut it down after the block."""
        name = f"{verb}-{next(_numbers)}"
        self.call(verb, name=name, **fields)
        try:
            yield name
        finally:
            self.call("shutdown", name=name)

    @property
    def producer(self) -> str:
        """A plain producer for all tests: the end of one takes 3 s in 5.3."""
        if not self._producer:
            self._producer = f"producer-{next(_numbers)}"
            self.call("producer", name=self._producer, group=f"plain-{next(_numbers)}")
        return self._producer

    def send(self, name: str, **fields: Any) -> list[Row]:
        """Send ``count`` messages; return their receipts."""
        receipts: list[Row] = self.call("send", name=name, **fields)["receipts"]
        return receipts

    def received(self, name: str, count: int, timeout_s: float = 45) -> list[Row]:
        """Wait until a push consumer has ``count`` messages; return all that it has."""
        answer = self.call("await", timeout_s + 30, name=name, count=count, timeoutMs=int(timeout_s * 1000))
        messages: list[Row] = answer["messages"]
        return messages

    def queues_of(self, name: str, topic: str) -> set[int]:
        """Return the ids of the queues of a topic that a push consumer has now (one broker)."""
        queues: list[Row] = self.call("assigned", name=name)["queues"]
        return {queue["queueId"] for queue in queues if queue["topic"] == topic}


@contextmanager
def java_clients(version: str, serialize: str, namesrv: str, directory: Path, *options: str) -> Iterator[JavaClients]:
    """Run ``Clients`` with ``options`` for its JVM until the block ends."""
    memory = ("-Xms64m", "-Xmx512m", f"-Drocketmq.serialize.type={serialize}")
    with start_java(
        f"client-{version}", "Clients", namesrv, directory=directory, options=(*memory, *options)
    ) as process:
        yield JavaClients(process, version, serialize)
