"""The Java program ``StoreTool``, driven from a test: RocketMQ's own clients write and read all kinds of messages.

Lives here: ``StoreTool`` and the messages that it reports.
"""

import base64
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tests.interop.toolchain import JavaProcess, start_java

ANSWER_S = 90.0


@dataclass(frozen=True, slots=True)
class Seen:
    """One message as a consumer of either side sees it: the parts that must be equal on both."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size_bytes: int
    sys_flag: int
    flag: int
    born_timestamp: int
    store_timestamp: int
    reconsume_times: int
    prepared_offset: int
    body: bytes
    properties: dict[str, str] = field(hash=False)

    @property
    def place(self) -> tuple[str, int, int]:
        """Return topic, queue and queue offset."""
        return self.topic, self.queue_id, self.queue_offset


def seen_by_java(row: dict[str, Any]) -> Seen:
    """Return a message that Java reported."""
    return Seen(
        row["topic"],
        row["queue"],
        row["offset"],
        row["physical"],
        row["size"],
        row["sys_flag"],
        row["flag"],
        row["born"],
        row["stored"],
        row["reconsumed"],
        row["prepared"],
        base64.b64decode(row["body"]),
        row["properties"],
    )


class StoreTool:
    """RocketMQ's clients of one version, connected to one name server; ``call`` gives a command, returns its rows."""

    def __init__(self, version: str, namesrv: str, broker: str, broker_name: str, directory: Path) -> None:
        """Start it and wait until it is connected. ``version``: "4.9" or "5.3"."""
        self._java: JavaProcess = start_java(
            f"server-{version}", "StoreTool", namesrv, broker, broker_name, directory=directory
        )
        self._rows_until("ready")

    def _rows_until(self, end: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        while True:
            row = self._java.read(ANSWER_S)
            if row["event"] == "error":
                raise self._java.failure(row["error"])
            if row["event"] == end:
                return rows
            rows.append(row)

    def call(self, *words: object) -> list[dict[str, Any]]:
        """Send one command and return its report."""
        self._java.write_line(" ".join(map(str, words)))
        return self._rows_until("done")

    def read(self, topic: str, queues: int = 1) -> list[Seen]:
        """Return every message of a topic, queue by queue."""
        return [seen_by_java(row) for row in self.call("read", topic, queues) if row["event"] == "message"]

    def one(self, *words: object) -> dict[str, Any]:
        """Send a command that reports one row, and return it."""
        [row] = self.call(*words)
        return row

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._java.stop()
