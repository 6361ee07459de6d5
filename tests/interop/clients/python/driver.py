"""RocketMQ's C++ client, librocketmq, through the PyPI package ``rocketmq``, driven by lines on stdin; one JSON line on
stdout for each. Arguments: name server, folder for logs. Runs in an environment that has the package, without ours.
"""

import json
import os
import sys
import threading
import time
from typing import Any
from urllib.parse import unquote

from rocketmq.client import (  # type: ignore[import-not-found]
    Message,
    MessageModel,
    Producer,
    PullConsumer,
    PushConsumer,
    RecvMessage,
)
from rocketmq.ffi import dll  # type: ignore[import-not-found]

SUCCESS, LATER = 0, 1
Fields = dict[str, str]
NAMESRV = sys.argv[1]
producers: dict[str, Any] = {}
consumers: dict[str, Any] = {}
inboxes: dict[str, "Inbox"] = {}


class Inbox:
    """What a consumer was handed."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.rows: list[dict[str, Any]] = []
        self.tries: dict[bytes, int] = {}


def row_of(message: Any, names: list[str]) -> dict[str, Any]:
    """Return a received message. The C interface hands out one property by its name, and no map of them."""
    properties = {name: (message.get_property(name) or b"").decode() for name in names}
    return {
        "body": (message.body or b"").hex(),
        "tags": (message.tags or b"").decode(),
        "keys": (message.keys or b"").decode(),
        "properties": properties,
        "tries": message.reconsume_times,
        "queue": message.queue_id,
        "offset": message.queue_offset,
    }


def message_of(fields: Fields, body: bytes) -> Any:
    """Build a message."""
    message = Message(fields["topic"])
    dll.SetByteMessageBody(message, body, len(body))
    if fields.get("tags"):
        message.set_tags(fields["tags"])
    if fields.get("keys"):
        message.set_keys(fields["keys"])
    if fields.get("delayLevel"):
        message.set_delay_time_level(int(fields["delayLevel"]))
    for name, value in fields.items():
        if name.startswith("property."):
            message.set_property(name.removeprefix("property."), value)
    return message


def bodies_of(fields: Fields) -> list[bytes]:
    """Return the bodies to send."""
    return [bytes.fromhex(text) for text in fields["bodies"].split(",")]


def receipt(sent: Any) -> dict[str, Any]:
    """Return what the broker answered."""
    return {"id": sent.msg_id, "offset": sent.offset, "status": int(sent.status)}


def producer(fields: Fields) -> Any:
    """Start a producer."""
    made = Producer(fields["group"], timeout=10_000, max_message_size=4 << 20)
    made.set_namesrv_addr(NAMESRV)
    made.start()
    producers[fields["name"]] = made
    return {}


def send(fields: Fields) -> Any:
    """Send messages."""
    by, mode = producers[fields["name"]], fields.get("mode", "sync")
    sent: list[dict[str, Any]] = []
    failed: list[Exception] = []
    bodies = bodies_of(fields)
    for body in bodies:
        message = message_of(fields, body)
        if mode == "oneway":
            by.send_oneway(message)
        elif mode == "async":
            by.send_async(message, lambda result: sent.append(receipt(result)), failed.append)
        elif "shard" in fields:
            sent.append(receipt(by.send_orderly(message, int(fields["shard"]))))
        else:
            sent.append(receipt(by.send_sync(message)))
    give_up_s = time.monotonic() + 20
    while mode == "async" and len(sent) + len(failed) < len(bodies):
        if time.monotonic() > give_up_s:
            raise TimeoutError("callbacks did not come")
        time.sleep(0.01)
    if failed:
        raise failed[0]
    return {"sent": sent}


def batch(fields: Fields) -> Any:
    """Send messages in one batch."""
    messages = [message_of(fields, body) for body in bodies_of(fields)]
    return {"sent": [receipt(producers[fields["name"]].send_batch(messages))]}


def push(fields: Fields) -> Any:
    """Start a push consumer."""
    model = MessageModel.BROADCASTING if "broadcast" in fields else MessageModel.CLUSTERING
    made = PushConsumer(fields["group"], orderly="orderly" in fields, message_model=model)
    made.set_namesrv_addr(NAMESRV)
    made.set_instance_name(fields["name"])
    made.set_thread_count(1 if "orderly" in fields else 4)
    inbox, later = Inbox(), int(fields.get("later", "0"))
    names = fields.get("names", "").split(",") if fields.get("names") else []

    def on_message(_consumer: Any, handle: Any) -> int:
        message = RecvMessage(handle)
        with inbox.lock:
            inbox.rows.append(row_of(message, names))
            body = message.body or b""
            inbox.tries[body] = inbox.tries.get(body, 0) + 1
            return LATER if inbox.tries[body] <= later else SUCCESS

    dll.Subscribe(made._handle, fields["topic"].encode(), fields.get("expression", "*").encode())
    made._register_callback(on_message)
    made.start()
    consumers[fields["name"]], inboxes[fields["name"]] = made, inbox
    return {}


def wait(fields: Fields) -> Any:
    """Wait for messages; return all that came."""
    inbox, give_up_s = inboxes[fields["name"]], time.monotonic() + int(fields["timeoutMs"]) / 1000
    while True:
        with inbox.lock:
            rows = list(inbox.rows)
        if len(rows) >= int(fields["count"]) or time.monotonic() > give_up_s:
            return {"messages": rows}
        time.sleep(0.02)


def pull(fields: Fields) -> Any:
    """Pull what every queue has."""
    made = PullConsumer(fields["group"])
    made.set_namesrv_addr(NAMESRV)
    made.start()
    PullConsumer.offset_table = {}
    rows: list[dict[str, Any]] = []
    give_up_s = time.monotonic() + 20
    while len(rows) < int(fields["count"]) and time.monotonic() < give_up_s:
        rows += [row_of(message, []) for message in made.pull(fields["topic"], fields.get("expression", "*"))]
    made.shutdown()
    return {"messages": rows}


def shutdown(fields: Fields) -> Any:
    """Stop a producer or consumer."""
    for table in (producers, consumers):
        made = table.pop(fields["name"], None)
        if made is not None:
            made.shutdown()
    return {}


VERBS = {
    "producer": producer,
    "send": send,
    "batch": batch,
    "push": push,
    "await": wait,
    "pull": pull,
    "shutdown": shutdown,
}


def main() -> None:
    """Answer each line."""
    for line in sys.stdin:
        verb, *words = line.split()
        pairs = (word.split("=", 1) for word in words)
        fields = {unquote(name): unquote(value) for name, value in pairs}
        try:
            answer = VERBS[verb](fields)
        except Exception as error:
            answer = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    os._exit(0)  # the library's threads do not end


if __name__ == "__main__":
    main()
