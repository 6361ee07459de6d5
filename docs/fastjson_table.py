"""The list of docs/compatibility.md about JSON that is not quite standard: what RocketMQ and PocketMQ read.

``tests/vectors/fastjson.json`` has what RocketMQ's own classes read from each body (``tests/interop/test_fastjson.py``
compares it with the jars); what PocketMQ reads is tried here.
"""

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pocketmq.remoting.errors import BodyIllegal
from pocketmq.remoting.protocol.body import decode_body
from pocketmq.remoting.protocol.client import HeartbeatData

VECTORS: Final = Path(__file__).resolve().parent.parent / "tests" / "vectors" / "fastjson.json"
TITLES: Final = {
    "subVersion": "whole number",
    "unitMode": "bool",
    "messageModel": "enum",
    "groupName": "string",
    "codeSet": "list of whole numbers",
    "JSON:": "the text itself",
}
"""Field of a case → what the list calls it."""
REFUSED: Final = "refused"
VERDICTS: Final = (
    "both",
    "RocketMQ alone",
    "PocketMQ alone",
    "RocketMQ 5.3 and PocketMQ",
    "refused by both",
    "otherwise",
)


def vectors() -> list[dict[str, Any]]:
    """Return the recorded cases: name, body, and what each version read, None for a refusal."""
    cases: list[dict[str, Any]] = json.loads(VECTORS.read_text())
    return cases


def read_here(body: str, field: str) -> object:
    """Return what PocketMQ reads of a heartbeat in the field that the case is about, or ``REFUSED``."""
    try:
        data = decode_body(body.encode(), HeartbeatData)
    except BodyIllegal:
        return REFUSED
    consumer = data.consumer_data_set[0]
    if field == "unitMode":
        return consumer.unit_mode
    if field == "messageModel":
        return consumer.message_model or "CLUSTERING"
    if field == "subVersion":
        return consumer.subscription_data_set[0].sub_version
    if field == "codeSet":
        return list(consumer.subscription_data_set[0].code_set or ())
    return [data.client_id, consumer.group_name]


def read_there(row: dict[str, Any] | None, field: str) -> object:
    """Return what RocketMQ read, with the defaults that both have for a value that is missing."""
    if row is None:
        return REFUSED
    if field == "messageModel":
        return row[field] or "CLUSTERING"
    if field == "subVersion":  # RocketMQ's default is the time of the request
        return 0 if row[field] == "now" else row[field]
    if field == "codeSet":
        return [] if row[field] == "null" else json.loads(row[field])
    if field == "unitMode":
        return row[field]
    return [row["clientID"], row["groupName"] or ""]


def verdict(case: dict[str, Any]) -> tuple[str, str, str]:
    """Return (field, the value sent, who reads it)."""
    field, _, value = case["case"].partition(" ")
    here = read_here(case["body"], field)
    of_4_9, of_5_3 = read_there(case["4.9"], field), read_there(case["5.3"], field)
    if here == of_4_9 == of_5_3:
        return field, value, "refused by both" if here == REFUSED else "both"
    if here == REFUSED and of_4_9 == of_5_3:
        return field, value, "RocketMQ alone"
    if of_4_9 == of_5_3 == REFUSED:
        return field, value, "PocketMQ alone"
    if of_4_9 == REFUSED and of_5_3 == here:
        return field, value, "RocketMQ 5.3 and PocketMQ"
    return field, value, "otherwise"


def fastjson(_page: str) -> str:
    """Return the list: for each type of field, who reads what."""
    found = [verdict(case) for case in vectors()]
    return "".join(_lines(field, found) for field in TITLES)


def _lines(field: str, found: list[tuple[str, str, str]]) -> str:
    def parts() -> Iterator[str]:
        for wanted in VERDICTS:
            values = [value for of, value, who in found if of == field and who == wanted]
            if values:
                yield f"*{wanted}* " + ", ".join(each if field == "JSON:" else f"`{each}`" for each in values)

    text = f"- **{TITLES[field]}**: {'; '.join(parts())}"
    return textwrap.fill(text, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False) + "\n"
