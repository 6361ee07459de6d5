"""Stores that earlier versions of PocketMQ wrote: ``tests/vectors/pocketmq-<commit>``. Every later version opens them.

``tests/vectors/make_pocketmq_stores.py`` describes and makes them.

Lives here: unpacking one, and the messages that its own version saw.
"""

import base64
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).parents[1] / "vectors"
COMMITS = ("11179eb",)
NAMES = tuple(
    (commit, path.stem.removeprefix("store-"))
    for commit in COMMITS
    for path in sorted((VECTORS / f"pocketmq-{commit}").glob("store-*.zip"))
)


@dataclass(slots=True)
class OldStore:
    """One store, unpacked. ``messages``: of every queue, as its own version read them, bodies not compressed."""

    mode: str
    state: str
    directory: Path
    settings: dict[str, Any]
    now_ms: int
    topics: dict[str, list[int]]
    groups: list[str]
    offsets: dict[str, dict[str, dict[int, int]]]
    halves: list[int]
    messages: list[dict[str, Any]]

    def of(self, topic: str, queue_id: int | None = None) -> list[dict[str, Any]]:
        """Return the messages of a topic, or of one of its queues."""
        return [each for each in self.messages if each["topic"] == topic and queue_id in (None, each["queue_id"])]


def unpacked(commit: str, name: str, target: Path) -> OldStore:
    """Unpack a store below ``target``."""
    with zipfile.ZipFile(VECTORS / f"pocketmq-{commit}" / f"store-{name}.zip") as archive:
        archive.extractall(target)
    seen = json.loads((target / "seen.json").read_text())
    mode, state = name.split("-")
    return OldStore(
        mode,
        state,
        target / "store",
        seen["store"],
        seen["now_ms"],
        seen["topics"],
        seen["groups"],
        {
            group: {topic: {int(queue): at for queue, at in queues.items()} for topic, queues in topics.items()}
            for group, topics in seen["offsets"].items()
        },
        seen["halves"],
        [{**each, "body": base64.b64decode(each["body"])} for each in seen["messages"]],
    )
