"""Frames recorded between PocketMQ's SDK and RocketMQ's servers: the file's form.

A file is gzip over JSON lines, one for each kind: request code, who wrote it, serialize type and response code, the
first of each that is not long. ``tests/interop/test_sdk_on_rocketmq_frames.py`` records them.

Lives here: reading and writing.
"""

import base64
import gzip
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pocketmq.remoting.frame import Frame, FrameDecoder, new_scratch
from pocketmq.remoting.frame_budget import FrameBudget

VECTORS = Path(__file__).parents[1] / "vectors"
RELEASES = {"4.9": "4.9.7", "5.3": "5.3.3"}

Key = tuple[int, str, int, int]


def frames_path(version: str) -> Path:
    """Return the file with the frames of RocketMQ "4.9" or "5.3"."""
    return VECTORS / f"rocketmq-{RELEASES[version]}" / "frames.jsonl.gz"


@dataclass(slots=True, frozen=True)
class RecordedFrame:
    """One frame. ``name`` and ``request_code``: of the request that it is, or answers; ``answer_code`` is -1 for a
    request; ``by``: its writer, ``client`` or ``server``; ``frame``: its bytes, the length first, in base64.
    """

    name: str
    request_code: int
    by: str
    answer_code: int
    serialize_type: int
    frame: str

    @property
    def key(self) -> Key:
        """Return the key: a file has one frame of each."""
        return self.request_code, self.by, self.serialize_type, self.answer_code

    @property
    def data(self) -> bytes:
        """Return the bytes of the frame."""
        return base64.b64decode(self.frame)

    def decoded(self) -> Frame:
        """Return the frame as the remoting layer sees it."""
        (frame,) = FrameDecoder(new_scratch(), FrameBudget()).feed(self.data)
        return frame


def write_frames(path: Path, frames: Iterable[RecordedFrame]) -> None:
    """Write frames in the order of their keys; the same frames give the same bytes."""
    lines = [json.dumps(asdict(frame)) for frame in sorted(frames, key=lambda frame: frame.key)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("\n".join(lines).encode() + b"\n", mtime=0))


def read_frames(path: Path) -> list[RecordedFrame]:
    """Return the frames of a file."""
    lines: list[dict[str, Any]] = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    return [RecordedFrame(**line) for line in lines]
