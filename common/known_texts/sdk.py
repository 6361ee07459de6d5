"""The exceptions of PocketMQ's own SDK, as the last line of a traceback names them.

Lives here: ``SDK_ROWS``; ``SDK_CLASS_ROWS`` for all others, whose text says enough.
"""

from typing import Final

from pocketmq.common.errors import Cause, Stored
from pocketmq.common.known_texts.words import NO_ONE, PULL_AGAIN, SYNC_AGAIN, texts
from pocketmq.common.refusal_row import Fault, Request, Row, Side, Text

_AT_ONCE: Final = "no client: the error is raised before anything is sent"


def _classes(*names: str, request: Request = Request.SEND) -> tuple[Text, ...]:
    """Return texts with the names of classes, of which a traceback shows ``MODULE.errors.NAME: what happened``."""
    return texts(Side.CLIENT, *(f"errors.{name}%s" for name in names), request=request)


SDK_ROWS: Final = (
    Row(
        cause=Cause.CONNECTION,
        key="sdk_no_name_server",
        what="PocketMQ's client has no name server to ask",
        why="None was given, or none of those given answered until the time of the call was over.",
        texts=_classes("NoNameServer"),
        retried="PocketMQ's client asks again, within the time of the call",
        fault=Fault.CLIENT,
        cure="Start one (pocketmq standalone), or give its address: namesrv=, --namesrv or POCKETMQ_NAMESRV.",
        docs="docs/sending.md#brokers-and-name-servers-that-start-or-restart",
        source="pocketmq.client.errors",
    ),
    Row(
        cause=Cause.NO_ROUTE,
        key="sdk_no_route",
        what="PocketMQ's client found no broker that has, takes or serves the topic",
        why="The topic does not exist and no broker creates it, or its broker is not registered.",
        texts=_classes("NoRoute", "BrokerNotExist"),
        retried="PocketMQ's client asks again, within the time of the call",
        fault=Fault.CLIENT,
        cure="See pocketmq topic list and pocketmq brokers; create the topic (pocketmq topic create TOPIC).",
        docs="docs/sending.md#no_route",
        source="pocketmq.client.errors",
    ),
    Row(
        cause=Cause.BAD_REQUEST,
        key="sdk_message_refused",
        what="PocketMQ's client refuses the message, the selector or the subscription as it is",
        why="A body, a property or a name breaks a rule, a selector returned no queue of the topic, or a subscription "
        "cannot be read. The text says which.",
        texts=_classes("MessageIllegal", "SelectorFailed", "SubscriptionIllegal", "OffsetIllegal"),
        retried=_AT_ONCE,
        fault=Fault.CLIENT,
        cure="Change what the text names.",
        docs="docs/sending.md#bad_request",
        source="pocketmq.client.errors, pocketmq.common.errors",
    ),
    Row(
        cause=Cause.CONFIG,
        key="sdk_used_wrongly",
        what="PocketMQ's client is used where it cannot work",
        why="It is not started or stopped already, belongs to another event loop or thread, or was forked after its "
        "start.",
        texts=_classes("NotStarted", "WrongLoop", "ForkedClient", "ConfigError"),
        retried=_AT_ONCE,
        fault=Fault.CLIENT,
        cure="Use it inside of async with, in one loop (pocketmq.client.blocking for plain threads), and start it in "
        "the process that uses it. A wrong setting is named in the text.",
        docs="docs/faq.md#programs",
        source="pocketmq.client.errors",
    ),
    Row(
        cause=Cause.CONNECTION,
        key="sdk_connection",
        what="PocketMQ's client could not connect, lost the connection, or got no answer in time",
        why="The broker is away, hangs, or its address cannot be reached from here.",
        texts=_classes("ConnectFailed", "ConnectionLost", "RequestTimeout"),
        stored=Stored.UNKNOWN,
        retried=SYNC_AGAIN,
        fault=Fault.PEER,
        cure="See pocketmq brokers, then pocketmq doctor.",
        docs="docs/sending.md#connection",
        source="pocketmq.remoting.errors",
    ),
    Row(
        cause=Cause.NONE,
        key="sdk_not_safe",
        what="the message was not delivered, and the durable retry did not keep it either: only the caller has it",
        why="The send failed, and the retry store is full, locked by another process, damaged or away.",
        texts=_classes("NotSafe"),
        stored=Stored.UNKNOWN,
        retried="no client: the durable retry does not have it",
        fault=Fault.CLIENT,
        cure="Keep the message and send it again; then cure what the text says about the retry store.",
        bad_cures=("dropping it because a store was configured: this error says that it is not there",),
        docs="docs/durable-retry.md#what-the-caller-gets",
        source="pocketmq.client.durable.errors",
    ),
    Row(
        cause=Cause.CONFIG,
        key="sdk_retry_store",
        what="the store of the durable retry does not work",
        why="Another process owns it, it is full, damaged, or its server or disk does not answer.",
        texts=_classes(
            "RetryStoreLocked",
            "RetryStoreFull",
            "RetryStoreCorrupt",
            "RetryStoreUnreachable",
            "RetryStoreRefused",
            request=Request.OTHER,
        ),
        retried="the durable retry opens it again by itself, but for a store that is damaged",
        fault=Fault.OPERATOR,
        cure="pocketmq retry-store list URL shows what is in it, and who owns it; give each process a name of its own.",
        docs="docs/durable-retry.md#stores",
        source="pocketmq.client.durable.errors",
    ),
    Row(
        cause=Cause.NONE,
        key="sdk_pull_failed",
        what="PocketMQ's consumer could not pull from a queue",
        why="The broker refused the pull or did not answer; the field error beside the event has its text.",
        texts=texts(Side.CONSUMER, "pull_failed", request=Request.PULL),
        retried=PULL_AGAIN,
        fault=Fault.PEER,
        cure="Explain the text of the error.",
        docs="docs/consuming.md#what-a-consumer-does-now",
        source="pocketmq.client.push",
        wraps=True,
    ),
    Row(
        cause=Cause.NONE,
        key="sdk_waits_for_lock",
        what="PocketMQ's consumer waits for the lock of an ordered queue",
        why="Another client holds it; the fields of the event name the holder, and when the lock expires.",
        texts=texts(Side.CONSUMER, "queue_waits_for_lock", request=Request.OTHER),
        retried="the consumer: it asks for the lock again until it is free or expires",
        fault=Fault.PEER,
        cure="See pocketmq lock list. A client that was killed keeps its locks until they expire; stop consumers with "
        "SIGTERM.",
        scenario="ordered-lock-stuck",
        docs="docs/consuming.md#when-a-queue-stands-still",
        source="pocketmq.client.handlers",
    ),
)

SDK_CLASS_ROWS: Final = (
    Row(
        cause=Cause.NONE,
        key="exception_of_pocketmq",
        what="an error of PocketMQ's, whose text itself says what happened, why, and in brackets what to do",
        why="The class says the kind: SendFailed all attempts of a send, with a line for each; BrokerUnavailable and "
        "BrokerAnswerError an answer with a code.",
        texts=texts(
            Side.CLIENT,
            *(f"pocketmq.{module}.errors.%s" for module in ("client", "client.durable", "remoting", "common", "store")),
            request=Request.OTHER,
        ),
        retried=NO_ONE.replace("this is no answer to a send", "the class says nothing about it"),
        fault=Fault.CLIENT,
        cure="Do what stands in brackets at the end of the text.",
        docs="docs/sending.md#sendfailed-it-was-not-delivered",
        source="pocketmq",
        wraps=True,
    ),
)
"""They know only the class of an exception."""
