"""The recorded bodies are those of RocketMQ's classes."""

import base64
import json
import os
from pathlib import Path

import pytest

from tests.interop.toolchain import start_java

FILE = Path(__file__).parents[1] / "vectors" / "java-bodies.json"
NAMES = 6


@pytest.mark.parametrize(("kind", "version"), [("client-4.9", "4.9.8"), ("client-5.3", "5.3.3")])
def test_bodies_are_as_recorded(kind: str, version: str, tmp_path: Path) -> None:
    """tests/vectors/java-bodies.json; RECORD_VECTORS=1 writes it again."""
    with start_java(kind, "Bodies", directory=tmp_path) as process:
        rows = [process.read(60) for _ in range(NAMES)]
    found = {row["name"]: base64.b64decode(row["body"]).decode() for row in rows}
    recorded = json.loads(FILE.read_text()) if FILE.exists() else {}
    if os.environ.get("RECORD_VECTORS"):
        FILE.write_text(json.dumps(recorded | {version: found}, indent=1, sort_keys=True) + "\n")
    else:
        assert recorded[version] == found
