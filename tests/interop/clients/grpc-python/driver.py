"""RocketMQ's gRPC client for Python (PyPI ``rocketmq-python-client``), driven by lines on stdin; one JSON line on
stdout for each. Arguments: endpoints, access key and secret key (both may be empty). Runs in an environment that has
the package, without ours.
"""

import json
import os
import sys
import threading
import time
from typing import Any
from urllib.parse import unquote

from rocketmq import (  # type: ignore[import-not-found]
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType  # type: ignore[import-not-found]

Fields = dict[str, str]
ENDPOINTS, ACCESS_KEY, SECRET_KEY = (*sys.argv[1:4], "", "")[:3]
members: dict[str, Any] = {}
inboxes: dict[str, "Inbox"] = {}
received: dict[str, list[Any]] = {}


def configuration(fields: Fields) -> Any:
    """Return what every client needs."""
    namespace = fields.get("namespace", "")
    return ClientConfiguration(ENDPOINTS, Credentials(ACCESS_KEY, SECRET_KEY), namespace)


class Inbox(MessageListener):  # type: ignore[misc]
    """What a push consumer was handed; the first ``later`` deliveries of a message fail."""

    def __init__(self, later: int, pause_s: float) -> None:
        self.lock = threading.Lock()
        self.rows: list[dict[str, Any]] = []
        self.tries: dict[bytes, int] = {}
        self.later = later
        self.pause_s = pause_s

    def consume(self, message: Any) -> Any:
        """Take one message."""
        if self.pause_s:
            time.sleep(self.pause_s)
        with self.lock:
            self.rows.append(row_of(message))
            count = self.tries[message.body] = self.tries.get(message.body, 0) + 1
        return ConsumeResult.FAILURE if count <= self.later else ConsumeResult.SUCCESS


class Checker(TransactionChecker):  # type: ignore[misc]
    """Decides transactions that the server asks about."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.asked: list[str] = []

    def check(self, message: Any) -> Any:
        """Answer."""
        self.asked.append(message.body.hex())
        return TransactionResolution.COMMIT if self.answer == "commit" else TransactionResolution.ROLLBACK


def row_of(message: Any) -> dict[str, Any]:
    """Return a received message."""
    return {
        "body": message.body.hex(),
        "topic": message.topic,
        "id": message.message_id,
        "tag": message.tag or "",
        "keys": " ".join(message.keys or ()),
        "group": message.message_group or "",
        "properties": dict(message.properties or {}),
        "attempt": message.delivery_attempt,
    }


def message_of(fields: Fields, body: bytes) -> Any:
    """Build a message."""
    message = Message()
    message.topic = fields["topic"]
    message.body = body
    if fields.get("tag"):
        message.tag = fields["tag"]
    if fields.get("keys"):
        message.keys = fields["keys"]
    if fields.get("group"):
        message.message_group = fields["group"]
    if fields.get("delayMs"):
        message.delivery_timestamp = int(time.time()) + int(fields["delayMs"]) // 1000
    for name, value in fields.items():
        if name.startswith("property."):
            message.add_property(name.removeprefix("property."), value)
    return message


def producer(fields: Fields) -> Any:
    """Start a producer."""
    checker = Checker(fields["checker"]) if fields.get("checker") else None
    made = Producer(configuration(fields), fields["topics"].split(","), checker, fields.get("tls") == "true")
    made.startup()
    members[fields["name"]] = made
    made.checker_of_test = checker
    return {}


def send(fields: Fields) -> Any:
    """Send messages."""
    by, sent = members[fields["name"]], []
    for text in fields["bodies"].split(","):
        message = message_of(fields, bytes.fromhex(text))
        receipt = by.send_async(message).result(30) if fields.get("mode") == "async" else by.send(message)
        handle = getattr(receipt, "recall_handle", "") or ""
        sent.append({"id": receipt.message_id, "offset": receipt.offset, "recall": handle})
    return {"sent": sent}


def transaction(fields: Fields) -> Any:
    """Send a half message, and end it, or not."""
    by = members[fields["name"]]
    begun = by.begin_transaction()
    receipt = by.send(message_of(fields, bytes.fromhex(fields["body"])), begun)
    if fields["end"] == "commit":
        begun.commit()
    elif fields["end"] == "rollback":
        begun.rollback()
    return {"id": receipt.message_id}


def asked(fields: Fields) -> Any:
    """Return the bodies of the transactions that the server has asked about."""
    return {"asked": members[fields["name"]].checker_of_test.asked}


def recall(fields: Fields) -> Any:
    """Take a delayed message back."""
    receipt = members[fields["name"]].recall_message(fields["topic"], fields["handle"])
    return {"id": receipt.message_id}


def expression_of(fields: Fields) -> Any:
    """Return the filter."""
    if fields.get("sql"):
        return FilterExpression(fields["sql"], FilterType.SQL)
    return FilterExpression(fields.get("expression", "*"))


def push(fields: Fields) -> Any:
    """Start a push consumer."""
    inbox = Inbox(int(fields.get("later", "0")), float(fields.get("pauseS", "0")))
    made = PushConsumer(
        configuration(fields),
        fields["group"],
        inbox,
        {fields["topic"]: expression_of(fields)},
        tls_enable=fields.get("tls") == "true",
    )
    made.startup()
    members[fields["name"]], inboxes[fields["name"]] = made, inbox
    return {}


def wait(fields: Fields) -> Any:
    """Wait for messages of a push consumer."""
    inbox, end_s = inboxes[fields["name"]], time.monotonic() + int(fields["timeoutMs"]) / 1000
    while len(inbox.rows) < int(fields["count"]) and time.monotonic() < end_s:
        time.sleep(0.02)
    with inbox.lock:
        return {"messages": list(inbox.rows)}


def simple(fields: Fields) -> Any:
    """Start a simple consumer."""
    made = SimpleConsumer(
        configuration(fields),
        fields["group"],
        {fields["topic"]: expression_of(fields)},
        int(fields.get("waitS", "5")),
        tls_enable=fields.get("tls") == "true",
    )
    made.startup()
    members[fields["name"]], received[fields["name"]] = made, []
    return {}


def receive(fields: Fields) -> Any:
    """Receive once; the messages are kept for ``ack`` and ``change``, by their place."""
    found = members[fields["name"]].receive(int(fields["count"]), int(fields["invisibleMs"]) // 1000) or []
    kept = received[fields["name"]]
    first = len(kept)
    kept.extend(found)
    return {"messages": [row_of(message) | {"at": first + at} for at, message in enumerate(found)]}


def ack(fields: Fields) -> Any:
    """Acknowledge a message."""
    members[fields["name"]].ack(received[fields["name"]][int(fields["at"])])
    return {}


def change(fields: Fields) -> Any:
    """Change the time of a message."""
    message = received[fields["name"]][int(fields["at"])]
    members[fields["name"]].change_invisible_duration(message, int(fields["invisibleMs"]) // 1000)
    return {}


def shutdown(fields: Fields) -> Any:
    """Stop a client."""
    made = members.pop(fields["name"], None)
    if made is not None:
        made.shutdown()
    return {}


VERBS = {
    "producer": producer,
    "send": send,
    "transaction": transaction,
    "asked": asked,
    "recall": recall,
    "push": push,
    "await": wait,
    "simple": simple,
    "receive": receive,
    "ack": ack,
    "change": change,
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
