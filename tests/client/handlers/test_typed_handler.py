"""Handlers that take values: which type is found, what a call gets, and what becomes of a body that is none."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import msgspec
import pytest

from pocketmq.client import JSON, MSGPACK, BodyNotDecoded, Later, Message, ReceivedMessage
from pocketmq.client.errors import SubscriptionIllegal
from pocketmq.client.handlers.handler_call import handler_name, is_async_handler
from pocketmq.client.handlers.typed_handler import typed_handler
from pocketmq.common.record import encode_host
from pocketmq.common.record_codec import encode_record, received_message

if TYPE_CHECKING:
    from pocketmq.client import ReceivedMessage as OnlyForTypes  # noqa: F401

AnyT = TypeVar("AnyT")


class Order(msgspec.Struct):
    number: int
    text: str = ""


@dataclasses.dataclass
class Point:
    x: int


class Row(TypedDict):
    n: int


def received(body: bytes, *, topic: str = "T", broker: str = "b", offset: int = 0) -> ReceivedMessage:
    host = encode_host("127.0.0.1", 1)
    record = encode_record(topic, body, queue_id=0, queue_offset=offset, born_host=host, store_host=host)
    return received_message(record, broker)


def typed(handler: Callable[..., Any], *, batch: bool = False, body: Any = None, codec: Any = JSON) -> Any:
    return typed_handler(handler, codec, body, batch=batch)


def takes(annotation: str) -> Callable[[Any], Any]:
    def handler(value: Any) -> Any:
        return value

    handler.__annotations__["value"] = annotation
    return handler


@pytest.mark.parametrize(
    "annotation",
    [
        "ReceivedMessage",
        "Message",
        "Any",
        "object",
        "AnyT",
        "ReceivedMessage | None",
        "OnlyForTypes.ReceivedMessage",
        "pocketmq.client.ReceivedMessage",
    ],
)
def test_a_handler_of_messages_is_not_touched(annotation: str) -> None:
    """It costs nothing: the same object is registered."""
    handler = takes(annotation)
    assert typed(handler) is handler


def test_callables_without_annotations_take_messages() -> None:
    """Lambdas, built-in functions, objects."""
    plain: list[Any] = [lambda message: message, [].append, print, functools.partial(print, "x"), dict]
    batches: list[Any] = [takes("list"), takes("list[ReceivedMessage]"), takes("Sequence[Any]"), lambda messages: 0]
    for handler in plain:
        assert typed(handler) is handler
    for handler in batches:
        assert typed(handler, batch=True) is handler


@pytest.mark.parametrize(
    ("annotation", "body", "value"),
    [
        ("Order", b'{"number": 7, "text": "x"}', Order(7, "x")),
        ("Point", b'{"x": 1}', Point(1)),
        ("Row", b'{"n": 1}', {"n": 1}),
        ("dict[str, int]", b'{"n": 1}', {"n": 1}),
        ("list[Order]", b'[{"number": 1}]', [Order(1)]),
        ("int | None", b"null", None),
        ("bytes", b"\xff", b"\xff"),
        ("str", "ä".encode(), "ä"),
    ],
)
def test_the_annotation_says_the_type(annotation: str, body: bytes, value: Any) -> None:
    """JSON by default; ``bytes`` and ``str`` are the body itself."""
    assert typed(takes(annotation))(received(body)) == value


async def test_an_async_handler_and_the_message_beside() -> None:
    """The second parameter is the message, or the messages of the batch."""

    async def one(order: Order, message: ReceivedMessage) -> Any:
        return order.number, message.body

    async def many(orders: Sequence[Order], messages: list[ReceivedMessage]) -> Any:
        return [order.number for order in orders], len(messages)

    async def alone(order: Order, limit: int = 3) -> Any:
        return order.number + limit

    assert is_async_handler(typed(one))
    assert await typed(one)(received(b'{"number":1}')) == (1, b'{"number":1}')
    assert await typed(many, batch=True)([received(b'{"number":1}'), received(b'{"number":2}')]) == ([1, 2], 2)
    assert await typed(alone)(received(b'{"number":1}')) == 4
    assert handler_name(typed(one)) == handler_name(one)


def test_methods_partials_and_a_given_type() -> None:
    """``body=`` says the type of a function without annotations, or that it takes messages."""

    class Shop:
        def sell(self, order: Order) -> int:
            return order.number

        def __call__(self, order: Order) -> int:
            return order.number

    def keep(place: str, order: Order) -> Any:
        return place, order

    message = received(b'{"number":1}')
    assert typed(Shop().sell)(message) == 1
    assert typed(Shop())(message) == 1
    assert typed(functools.partial(keep, "here"))(message) == ("here", Order(1))
    assert typed(lambda value: value, body=Order)(message) == Order(1)
    assert typed(takes("Order"), body=ReceivedMessage)(message) is message
    assert typed(takes("Order"), codec=MSGPACK)(received(MSGPACK.encode(Order(5)))) == Order(5)


def typed_of_three(order: Order, message: ReceivedMessage, more: int) -> None: ...


def test_a_handler_may_have_parameters_that_nobody_gives() -> None:
    handlers: list[Any] = [lambda message, more=1: None, lambda *messages: None, print, [].append]
    for handler in handlers:
        assert typed(handler) is handler


@pytest.mark.parametrize(
    ("handler", "batch", "text"),
    [
        (takes("NoSuchType"), False, "type NoSuchType is not known here"),
        (takes("Callable[[], int]"), False, "cannot be decoded"),
        (takes("pytest.Item"), False, "no type that msgspec or pydantic makes"),
        (takes("Order"), True, "a batch is a list, its parameter is Order"),
        (lambda: None, False, r"it takes \(\), and is called with one message"),
        (lambda message, context: None, False, r"it takes \(message, context\), and is called with one message"),
        (lambda messages, context: None, True, "is called with one list of messages"),
        (lambda *, message: None, False, "is called with one message"),
        (typed_of_three, False, "is called with one body and one message"),
    ],
)
def test_a_type_that_can_never_be_decoded_is_refused(handler: Any, batch: bool, text: str) -> None:
    """At ``subscribe``, with the handler's name."""
    with pytest.raises(SubscriptionIllegal, match=text) as refused:
        typed(handler, batch=batch)
    assert handler_name(handler) in str(refused.value)


@pytest.mark.parametrize("body", [b"", b"{", b'{"number": "7"}', b"\xff\xfe", b'{"text": "x"}'])
def test_a_body_that_is_none_fails_in_one_clear_line(body: bytes) -> None:
    """The handler is not called; the error names message, type and place."""
    called: list[Any] = []

    def handler(order: Order) -> None:
        called.append(order)

    with pytest.raises(BodyNotDecoded, match=r"^body of Orders/broker-a/0/\d+ is no Order: .+") as error:
        typed(handler)(received(body, topic="Orders", broker="broker-a"))
    assert "\n" not in str(error.value)
    assert called == []
    assert len(str(error.value)) < 600
    with pytest.raises(BodyNotDecoded):
        received(body).decode(Order)


def test_a_body_nested_without_end_is_refused() -> None:
    """Also where its type allows anything."""
    with pytest.raises(BodyNotDecoded, match="is no"):
        received(b"[" * 1_000_000).decode(list[Any])


async def test_a_batch_goes_on_without_its_bad_bodies() -> None:
    """They alone are tried again, with the text of the first; what the handler puts off stays put off."""
    good, bad = received(b'{"number":1}', offset=0), received(b"?", offset=1)
    seen: list[Any] = []

    def handler(orders: list[Order]) -> Any:
        seen.append(orders)

    async def put_off(orders: list[Order], messages: list[ReceivedMessage]) -> Any:
        return Later(messages=messages)

    answer = typed(handler, batch=True)([good, bad])
    assert seen == [[Order(1)]]
    assert answer.messages == (bad,)
    assert "is no Order" in answer.reason
    assert (await typed(put_off, batch=True)([good, bad])).messages == (good, bad)
    with pytest.raises(BodyNotDecoded):
        typed(handler, batch=True)([bad])
    assert len(seen) == 1
    awaited = typed(functools.partial(lambda answer, orders: answer(orders, [good]), put_off), batch=True, body=Order)
    assert (await awaited([good, bad])).messages == (good, bad)


def test_messages_are_made_of_values() -> None:
    """And decoded by those that read without a handler."""
    message = Message.of("Orders", Order(3), sharding_key="o-3", tags="new")
    assert (message.body, message.sharding_key, message.tags) == (b'{"number":3,"text":""}', "o-3", "new")
    assert received(Message.of("T", Order(3), codec=MSGPACK).body).decode(Order, MSGPACK) == Order(3)
    assert received(b"x").decode(str) == "x"
    with pytest.raises(TypeError):
        received(b"x").decode(pytest.Item)


def test_a_value_without_an_encoding_is_refused() -> None:
    """As other illegal fields of a message are."""
    from pocketmq.client import MessageIllegal

    with pytest.raises(MessageIllegal, match="object cannot be encoded"):
        Message.of("T", object())


def test_models_of_pydantic() -> None:
    """Both ways, alone and inside other types; their errors come in one line."""
    pydantic = pytest.importorskip("pydantic")
    model: Any = pydantic.create_model("Model", number=(int, ...), when=(str, ...))
    value = model(number=1, when="now")
    for body in (JSON.encode(value), JSON.encode([value]), MSGPACK.encode(value)):
        assert b"now" in body
    assert typed(lambda given: given, body=model)(received(JSON.encode(value))) == value
    assert typed(lambda given: given, body=list[model])(received(JSON.encode([value]))) == [value]
    assert typed(lambda given: given, body=model, codec=MSGPACK)(received(MSGPACK.encode(value))) == value
    with pytest.raises(BodyNotDecoded, match="is no Model") as error:
        typed(lambda given: given, body=model)(received(b'{"number": "x"}'))
    assert "\n" not in str(error.value)
