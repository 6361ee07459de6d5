"""Record RocketMQ's output for tests without Java, and compare it with the recording.

    RECORD_VECTORS=1 make interop ARGS=tests/interop/test_stores_of_rocketmq.py

Lives here: packing a store with what a consumer saw, the parts of both that must be the same at every recording.
"""

import base64
import dataclasses
import json
import os
import zipfile
from typing import Any

from tests.interop.store_content import DLQ, ORDERS
from tests.interop.store_servers import RocketMQStores
from tests.interop.store_tool import Seen
from tests.store.rocketmq_vectors import SEEN_NAME, vector_path

RECORD = "RECORD_VECTORS"
LEFT_OUT = (".bak", "timermetrics", "transactionMetrics", "consumerOrderInfo.json")
"""Copies, and statistics of no use to us."""
_ALWAYS = (2026, 1, 1, 0, 0, 0)
_GIVEN = ("TAGS", "KEYS", "number", "grüße", "position")
"""Properties that the sender chose."""


def write_vector(stores: RocketMQStores, state: str) -> bool:
    """Record a store if the environment asks for it; return whether it was recorded."""
    if not os.environ.get(RECORD):
        return False
    root, path = stores.directory(state), vector_path(stores.version, state)
    path.parent.mkdir(parents=True, exist_ok=True)
    seen = [
        {**dataclasses.asdict(each), "body": base64.b64encode(each.body).decode()}
        for each in stores.contents[state].messages
    ]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for file in sorted(root.rglob("*")):
            name = str(file.relative_to(root))
            if not file.is_file() or name.endswith(LEFT_OUT):
                continue
            if file.name == "timerwheel":  # 38 MB of slots: a broker that takes over the timers rebuilds it
                continue
            archive.writestr(zipfile.ZipInfo(name, _ALWAYS), file.read_bytes(), zipfile.ZIP_DEFLATED, 9)
        text = json.dumps(seen, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        archive.writestr(zipfile.ZipInfo(SEEN_NAME, _ALWAYS), text, zipfile.ZIP_DEFLATED, 9)
    return True


def same_messages(seen: list[dict[str, Any]]) -> dict[tuple[str, int, int], tuple[Any, ...]]:
    """Return place → the parts that are equal in every recording, for topics whose places do not depend on time."""
    return {
        (each["topic"], each["queue_id"], each["queue_offset"]): (
            each["flag"],
            each["sys_flag"],
            each["body"],
            {name: value for name, value in each["properties"].items() if name in _GIVEN},
        )
        for each in seen
        if each["topic"] in (ORDERS, DLQ)
    }


def as_rows(messages: list[Seen]) -> list[dict[str, Any]]:
    """Return messages in the form of a vector's."""
    return [dataclasses.asdict(each) for each in messages]
