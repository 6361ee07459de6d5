"""Handlers that take a value instead of a message: their annotation says of which type.

    @consumer.subscribe("Orders")
    async def charge(order: Order, message: ReceivedMessage) -> None: ...   # the second parameter may be left out

Lives here: ``typed_handler``. A handler that takes messages is returned as it is, so that it costs nothing.
"""

import functools
import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, Union, get_args, get_origin

from pocketmq.client.errors import SubscriptionIllegal
from pocketmq.client.handlers.consume_result import Later, outcome_of
from pocketmq.client.handlers.handler_call import handler_name, is_async_handler
from pocketmq.common.message import Message, ReceivedMessage
from pocketmq.common.value_codec import BodyCodec, BodyNotDecoded, body_decoder, not_decoded

REWRAP: Final = "pocketmq_rewrap"
"""The attribute of a decorator's result that takes messages itself: a function that decorates another handler."""

_MESSAGES: Final = (inspect.Parameter.empty, Any, object, Message)
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

Decode = Callable[[ReceivedMessage], Any]


def typed_handler(handler: Callable[..., Any], codec: BodyCodec, body: Any, *, batch: bool) -> Callable[..., Any]:
    """Return a handler of messages that calls ``handler`` with decoded bodies; or ``handler``, if it takes messages.

    ``body``: the type of a body; None: as the first parameter is annotated. Raise ``SubscriptionIllegal`` for a type
    that cannot be found or decoded. A call raises ``BodyNotDecoded``, which counts as a failure of the handler; of a
    batch only the messages that were not decoded are tried again.
    """
    if not callable(handler):
        return handler  # refused by who registers it
    parameters = _parameters(handler)
    kind = _body_type(handler, parameters, batch) if body is None else None if _is_message(body) else body
    if kind is None:
        _check_arguments(handler, ("list of messages" if batch else "message",))
        return handler
    rewrap: Callable[[Any], Any] | None = getattr(handler, REWRAP, None)
    if rewrap is not None:
        inner: Any = getattr(handler, "__wrapped__")  # noqa: B009
        wrapped: Callable[..., Any] = rewrap(typed_handler(inner, codec, kind, batch=batch))
        return wrapped
    try:
        decoder = body_decoder(kind, codec)
    except Exception as error:
        raise _refused(handler, f"{_shown(kind)} cannot be decoded: {error}") from error
    both = len([each for each in parameters if each.default is inspect.Parameter.empty]) > 1
    given = ("list of bodies", "list of messages") if batch else ("body", "message")
    _check_arguments(handler, given if both else given[:1])

    def decode(message: ReceivedMessage) -> Any:
        body = message.body
        try:
            return decoder(body)
        except Exception as error:
            where = f"{message.topic}/{message.broker_name}/{message.queue_id}/{message.queue_offset}"
            raise not_decoded(where, kind, error) from error

    typed = (_typed_batch if batch else _typed_single)(handler, decode, both)
    functools.update_wrapper(typed, _without_partials(handler), updated=())
    return typed


def _without_partials(handler: Any) -> Any:
    while isinstance(handler, functools.partial):
        handler = handler.func
    return handler


def _typed_single(handler: Callable[..., Any], decode: Decode, both: bool) -> Callable[[ReceivedMessage], Any]:
    if is_async_handler(handler):

        async def call(message: ReceivedMessage) -> Any:
            value = decode(message)
            return await (handler(value, message) if both else handler(value))

        return call

    def call_plain(message: ReceivedMessage) -> Any:
        value = decode(message)
        return handler(value, message) if both else handler(value)

    return call_plain


def _typed_batch(handler: Callable[..., Any], decode: Decode, both: bool) -> Callable[[list[ReceivedMessage]], Any]:
    def decoded(messages: list[ReceivedMessage]) -> "_Batch":
        batch = _Batch()
        for message in messages:
            try:
                batch.values.append(decode(message))
                batch.good.append(message)
            except BodyNotDecoded as error:
                batch.bad.append(message)
                batch.error = batch.error or error
        if not batch.good and batch.error is not None:
            raise batch.error
        return batch

    if is_async_handler(handler):

        async def call(messages: list[ReceivedMessage]) -> Any:
            batch = decoded(messages)
            returned = await (handler(batch.values, batch.good) if both else handler(batch.values))
            return batch.answer(returned)

        return call

    def call_plain(messages: list[ReceivedMessage]) -> Any:
        batch = decoded(messages)
        returned = handler(batch.values, batch.good) if both else handler(batch.values)
        return batch.answer_later(returned) if inspect.isawaitable(returned) else batch.answer(returned)

    return call_plain


class _Batch:
    """The bodies of one call, and the messages that have none."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.good: list[ReceivedMessage] = []
        self.bad: list[ReceivedMessage] = []
        self.error: BodyNotDecoded | None = None

    def answer(self, returned: Any) -> Any:
        """Return the handler's answer, which asks for a later try of the messages that were not decoded, too."""
        if not self.bad:
            return returned
        outcome = outcome_of(returned, self.good)
        return Later(
            # one answer has one level: the handler's only if it put off everything itself
            delay_level=0,
            messages=[*outcome.later, *self.bad],
            suspend_ms=outcome.suspend_ms,
            reason=str(self.error),
        )

    async def answer_later(self, returned: Any) -> Any:
        return self.answer(await returned)


# -- annotations -----------------------------------------------------------------------------------------------------


def _parameters(handler: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        signature = inspect.signature(handler)
    except (ValueError, TypeError):  # a function of C without a signature
        return []
    return [each for each in signature.parameters.values() if each.kind in _POSITIONAL]


def _check_arguments(handler: Callable[..., Any], given: Sequence[str]) -> None:
    """Raise ``SubscriptionIllegal`` if no call with these positional arguments can succeed: else each message fails."""
    try:
        signature = inspect.signature(handler, follow_wrapped=False)
    except (ValueError, TypeError):
        return
    try:
        signature.bind(*given)
    except TypeError as error:
        raise _refused(
            handler,
            f"it takes {signature}, and is called with one {' and one '.join(given)}",
            "a handler takes one message; with a type of bodies, a body and perhaps its message",
        ) from error


def _body_type(handler: Callable[..., Any], parameters: Sequence[inspect.Parameter], batch: bool) -> Any:
    """Return the type of bodies that the first parameter names, or None for messages."""
    if not parameters:
        return None
    annotation = parameters[0].annotation
    if isinstance(annotation, str):
        annotation = _evaluated(handler, annotation)
    if not batch:
        return None if _is_message(annotation) else annotation
    if _is_message(annotation) or not get_args(annotation):
        if isinstance(annotation, type) and not issubclass(annotation, Sequence) and not _is_message(annotation):
            raise _refused(handler, f"a batch is a list, its parameter is {_shown(annotation)}")
        return None
    element = get_args(annotation)[0]
    return None if _is_message(element) else element


def _evaluated(handler: Callable[..., Any], annotation: str) -> Any:
    """Return what an annotation in quotes means at the handler's place."""
    function = inspect.unwrap(_without_partials(handler))
    if not hasattr(function, "__globals__"):
        function = getattr(function, "__func__", None) or getattr(type(function), "__call__", function)  # noqa: B004
    names = dict(getattr(function, "__globals__", {}))
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    if code is not None and cells:
        for name, cell in zip(code.co_freevars, cells, strict=True):
            try:
                names[name] = cell.cell_contents
            except ValueError:  # not yet set
                continue
    try:
        return eval(annotation, names)
    except Exception as error:
        if annotation.rpartition("[")[2].rstrip("]").rpartition(".")[2] in ("ReceivedMessage", "Message"):
            return ReceivedMessage  # imported for type checkers only
        raise _refused(
            handler,
            f"its parameter's type {annotation} is not known here ({error})",
            "define the type at the top of the module, or give it: subscribe(topic, body=TYPE)",
        ) from error


def _is_message(annotation: Any) -> bool:
    """Return whether an annotation stands for messages: the class, anything, or a wider type."""
    if any(annotation is each for each in _MESSAGES) or isinstance(annotation, TypeVar):
        return True
    if get_origin(annotation) in (Union, types.UnionType):
        return any(_is_message(each) for each in get_args(annotation))
    if not isinstance(annotation, type) or get_origin(annotation) is not None:
        return False
    if getattr(annotation, "_is_protocol", False):  # of messages, or of objects with some of their fields
        return True
    try:
        return issubclass(annotation, ReceivedMessage) or issubclass(ReceivedMessage, annotation)
    except TypeError:  # a TypedDict
        return False


def _shown(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else repr(kind)


def _refused(
    handler: Callable[..., Any], why: str, hint: str = "use a type of msgspec or pydantic, or ReceivedMessage"
) -> SubscriptionIllegal:
    return SubscriptionIllegal(f"handler {handler_name(handler)} refused", why=why, hint=hint)
