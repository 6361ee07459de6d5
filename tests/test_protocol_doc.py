"""The programs in the documents work."""

import re
import socket
import time
from pathlib import Path
from typing import Any

from pocketmq.testing import PocketBroker

ROOT = Path(__file__).resolve().parent.parent


def python_blocks(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)


def test_the_client_of_the_protocol_document_sends_and_reads() -> None:
    """A client written from the document, with the msgpack library alone, gets its message back."""
    [source] = python_blocks("docs/protocol.md")
    assert len(source.splitlines()) < 70
    client: dict[str, Any] = {"__name__": "client"}
    exec(compile(source, "docs/protocol.md", "exec"), client)
    with PocketBroker() as broker:
        host, port = broker.address.split(":")
        with socket.create_connection((host, int(port))) as sock:
            queue_id, offset = client["send"](sock, "TopicTest", b"hello", tags="A")
            for _ in range(200):  # a message is visible slightly after its receipt
                messages = client["pull"](sock, "TopicTest", queue_id, offset)
                if messages:
                    break
                time.sleep(0.01)
            assert messages == [(offset, b"hello")]


def test_the_program_of_the_readme_runs(capsys: Any) -> None:
    """The ten lines on the first screen work."""
    source = python_blocks("README.md")[0]
    with PocketBroker() as broker:
        exec(compile(source.replace("127.0.0.1:9876", broker.namesrv), "README.md", "exec"), {"__name__": "__main__"})
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2
    assert "SEND_OK" in printed[0]
    assert "TopicTest" in printed[1]
    assert "hello" in printed[1]
