"""OpenTelemetry's spans of sends, as a stage.

Lives here: ``SendTelemetry``. ``client.telemetry`` makes the spans. One span a send, whatever its attempts: an attempt
that failed is an event. A resend of the durable retry has a span of its own, which links the first one.
"""

import asyncio
import copy
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from pocketmq.client.connection.instance import ClientInstance
from pocketmq.client.errors import SendFailed
from pocketmq.client.message.receipts import Receipt, SendStatus
from pocketmq.client.producer.pending_send import PendingSend
from pocketmq.client.producer.stages import SendStage
from pocketmq.client.sender.section import Section
from pocketmq.common.message import Message

if TYPE_CHECKING:
    from pocketmq.client.telemetry.spans import Operation, Spans

RECEIPTS_MAX: Final = 1_024
"""Receipts of a batch whose attempts are looked at."""
_MessageT = TypeVar("_MessageT", bound=Message)


class SendTelemetry(SendStage):
    """The spans of one producer's sends. It comes first: later stages see the messages that carry the context.

    A message is copied before its context is put in: the application's own is not changed. Rows of ``send_arrow`` carry
    no context, and have one span a part.
    """

    body_bytes_max = 0

    def __init__(self, instance: ClientInstance, spans: "Spans") -> None:
        self._instance = instance
        self._spans = spans
        self._sends: dict[asyncio.Future[Receipt], Operation] = {}
        self._sections: dict[Section, Operation] = {}

    # -- single sends ------------------------------------------------------------------------------------------

    def enter(self, send: PendingSend) -> None:
        """Begin the span of one message, which ends with its receipt; that of a oneway send ends at once."""
        operation, carried = self._spans.send(send.message, send.started_ns)
        if carried:
            send.message = with_properties(send.message, carried)
        future = send.future
        if future is None:
            self._spans.end(operation)
            return
        self._sends[future] = operation
        future.add_done_callback(self._sent)

    def _sent(self, future: "asyncio.Future[Receipt]") -> None:
        operation = self._sends.pop(future)
        error = _error_of(future)
        if error is None:
            self._stored(operation, [future.result()])
        else:
            self._failed(operation, error)

    # -- several together --------------------------------------------------------------------------------------

    def enter_batch(self, messages: list[Message], future: "asyncio.Future[Sequence[Receipt]]") -> None:
        """Begin the span of a batch, whose context each of its messages carries."""
        operation = self._spans.send_batch(messages)
        carrier = self._spans.carrier(operation)
        for index, message in enumerate(messages):
            carried = self._spans.carried(carrier, message)
            if carried:
                messages[index] = with_properties(message, carried)

        def sent(done: "asyncio.Future[Sequence[Receipt]]") -> None:
            error = _error_of(done)
            if error is None:
                self._stored(operation, done.result())
            else:
                self._failed(operation, error)

        future.add_done_callback(sent)

    def cut(self, section: Section) -> None:
        """Begin the span of a part of rows, or of messages that the durable retry sends again."""
        rows = section.rows
        if not section.is_resend and rows is None:
            return
        known = section.messages
        if section.is_resend and rows is not None:
            known = rows.messages()
        self._sections[section] = self._spans.send_section(
            section.queue.topic, known, section.count, is_resend=section.is_resend
        )

    def settled(self, section: Section, result: Sequence[Receipt] | Exception) -> None:
        """Note the attempts of single sends that failed; end the span of a part."""
        operation = self._sections.pop(section, None)
        if operation is not None:
            if isinstance(result, Exception):
                self._failed(operation, result)
            else:
                self._spans.attempts(operation, section.attempts)
                self._stored(operation, result)
            return
        if section.attempts and not isinstance(result, SendFailed):  # that one has them
            for future in section.futures:
                waiting = self._sends.get(future)
                if waiting is not None:
                    self._spans.attempts(waiting, section.attempts)

    # -- ends --------------------------------------------------------------------------------------------------

    def _stored(self, operation: "Operation", receipts: Sequence[Receipt]) -> None:
        if len(receipts):
            receipt = receipts[0]
            found = self._instance.routes.broker(receipt.broker)
            one = operation.count == 1
            self._spans.stored(
                operation,
                address="" if found is None else found.master,
                attempts=max(receipt.attempts for receipt in islice(receipts, RECEIPTS_MAX)),
                status="" if receipt.status is SendStatus.SEND_OK else receipt.status.name,
                msg_id=receipt.msg_id if one else "",
                partition=f"{receipt.broker}/{receipt.queue_id}" if one and receipt.broker else "",
            )
        self._spans.end(operation)

    def _failed(self, operation: "Operation", error: BaseException) -> None:
        if isinstance(error, SendFailed):
            self._spans.attempts(operation, error.attempts)
            self._spans.stored(operation, address=error.attempts[-1].address if error.attempts else "")
        self._spans.end(operation, error)


def with_properties(message: _MessageT, properties: Mapping[str, str]) -> _MessageT:
    """Return a message of the same kind with more properties."""
    result: Any = Message.copy_of(message) if type(message) is Message else copy.copy(message)
    result.properties = {**message.properties, **properties} if message.properties else properties
    return cast(_MessageT, result)


def _error_of(future: "asyncio.Future[Receipt] | asyncio.Future[Sequence[Receipt]]") -> BaseException | None:
    return asyncio.CancelledError() if future.cancelled() else future.exception()
