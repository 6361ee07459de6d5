"""Stores that RocketMQ itself wrote, kept in ``tests/vectors`` so that they are checked without Java.

``tests/vectors/rocketmq-<version>/store-<state>.zip`` holds the directory as a RocketMQ broker left it (``clean``:
closed, ``killed``: by ``kill -9``) and ``seen.json``: the messages that RocketMQ's own consumer had read from it.
``make interop`` writes them with RECORD_VECTORS=1 (``tests/interop/vectors.py``).

Lives here: unpacking them, what they hold.
"""

import base64
import json
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).parents[1] / "vectors"
FOLDERS = {"4.9": "rocketmq-4.9.7", "5.3": "rocketmq-5.3.3"}
STATES = ("clean", "killed")
SEEN_NAME = "seen.json"
SIZES: dict[str, Any] = {
    "mapped_file_size_commit_log": 16_384,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 50,
    "max_index_num": 200,
}
"""File sizes of these stores, in our words."""
_INDEX_HEADER = struct.Struct(">qqqqii")


@dataclass(slots=True)
class Vector:
    """One recorded store, unpacked."""

    version: str
    state: str
    directory: Path
    seen: list[dict[str, Any]]
    """Each with topic, queue_id, queue_offset, physical_offset, size_bytes, sys_flag, flag, born_timestamp,
    store_timestamp, reconsume_times, prepared_offset, body (bytes, not compressed), properties."""

    def of(self, topic: str) -> list[dict[str, Any]]:
        """Return the messages of a topic."""
        return [each for each in self.seen if each["topic"] == topic]


def vector_path(version: str, state: str) -> Path:
    """Return the path of a recorded store."""
    return VECTORS / FOLDERS[version] / f"store-{state}.zip"


def unpacked(version: str, state: str, target: Path) -> Vector:
    """Unpack a recorded store below ``target``. The archive holds no directory that is empty."""
    with zipfile.ZipFile(vector_path(version, state)) as archive:
        archive.extractall(target / "store")
    listed = target / "store" / SEEN_NAME
    seen = [{**each, "body": base64.b64decode(each["body"])} for each in json.loads(listed.read_text())]
    listed.unlink()
    return Vector(version, state, target / "store", seen)


def index_contents(directory: Path) -> list[bytes]:
    """Return the content of each index file, oldest first, without its name: RocketMQ's is the time of its creation,
    ours the store time of its first key.
    """
    return [path.read_bytes() for path in sorted(directory.iterdir())]


def index_header(content: bytes) -> tuple[int, ...]:
    """Return the six numbers of an index file's header."""
    return _INDEX_HEADER.unpack_from(content)
