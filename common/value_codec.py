"""Values as bodies: an object of the application to bytes, and back into the type that it names.

Lives here: ``BodyCodec``, ``JsonCodec`` and ``MsgpackCodec`` (by msgspec, and by pydantic for its models),
``BodyNotDecoded``.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, Protocol

import msgspec

from pocketmq.common.errors import Cause, MessageIllegal, PocketMQError

REASON_CHARS_MAX: Final = 400
_DECODERS_MAX: Final = 256


class BodyNotDecoded(PocketMQError):
    """A body is not what its handler takes; the text names the message, the type and the place in the body."""

    default_cause = Cause.CORRUPT


class BodyCodec(Protocol):
    """Encodes values, and decodes them into a given type. Stateless; called in any thread."""

    def encode(self, value: object) -> bytes:
        """Return the body of a value; raise anything for a value that has none."""
        ...

    def decoder(self, kind: Any) -> Callable[[bytes], Any]:
        """Return the function that decodes bodies into ``kind``, a type as in an annotation.

        Raise ``TypeError`` for a type that can never be decoded. The function raises anything for a body that it
        cannot decode. Called once for each handler.
        """
        ...


def _to_builtins(value: Any) -> Any:
    """Return what msgspec encodes instead of a value that it does not know: a pydantic model's fields."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise NotImplementedError(f"{type(value).__name__} has no encoding")


def _from_builtins(kind: Any, value: Any) -> Any:
    """Make a value of a type that msgspec does not know: a pydantic model."""
    if hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    raise NotImplementedError(f"{kind!r} has no decoding")


def _check_known(kind: Any) -> None:
    """Raise ``TypeError`` for a class that neither msgspec nor pydantic can make, instead of at the first message."""
    if isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType) and not hasattr(kind, "model_validate"):
        raise TypeError(f"{kind!r} is no type that msgspec or pydantic makes")


class JsonCodec:
    """JSON (RFC 8259): msgspec's types (Struct, dataclass, TypedDict, attrs, built-in ones) and pydantic's models."""

    def encode(self, value: object) -> bytes:
        """Return the JSON text of a value in UTF-8."""
        if hasattr(value, "model_dump_json"):
            text: str = value.model_dump_json()
            return text.encode()
        return msgspec.json.encode(value, enc_hook=_to_builtins)

    def decoder(self, kind: Any) -> Callable[[bytes], Any]:
        """Return a decoder of JSON texts into ``kind``."""
        if hasattr(kind, "model_validate_json"):
            validate: Callable[[bytes], Any] = kind.model_validate_json
            return validate
        _check_known(kind)
        return msgspec.json.Decoder(kind, dec_hook=_from_builtins).decode


class MsgpackCodec:
    """MessagePack, of the same types: smaller, and no text."""

    def encode(self, value: object) -> bytes:
        """Return a value in MessagePack."""
        return msgspec.msgpack.encode(value, enc_hook=_to_builtins)

    def decoder(self, kind: Any) -> Callable[[bytes], Any]:
        """Return a decoder of MessagePack into ``kind``."""
        _check_known(kind)
        return msgspec.msgpack.Decoder(kind, dec_hook=_from_builtins).decode


JSON: Final = JsonCodec()
"""Bodies in JSON, UTF-8: the default for handlers that take values."""
MSGPACK: Final = MsgpackCodec()
"""Bodies in msgpack."""


def body_decoder(kind: Any, codec: BodyCodec = JSON) -> Callable[[bytes], Any]:
    """Return the decoder of ``kind``: ``bytes`` is the body itself, ``str`` its text in UTF-8, else the codec's."""
    if kind is bytes:
        return bytes
    if kind is str:
        return _text
    return codec.decoder(kind)


@lru_cache(_DECODERS_MAX)
def known_decoder(kind: Any, codec: Any) -> Callable[[bytes], Any]:
    """Return what ``body_decoder`` does, made once."""
    return body_decoder(kind, codec)


def _text(body: bytes) -> str:
    return str(body, "utf-8")


def encode_value(value: object, codec: BodyCodec) -> bytes:
    """Return the body of a value. Raises ``MessageIllegal``."""
    try:
        return codec.encode(value)
    except Exception as error:
        raise MessageIllegal(
            "message refused, field body",
            why=f"{type(value).__name__} cannot be encoded: {one_line(error)}",
            hint="send bytes, or a value that the codec knows",
        ) from error


def not_decoded(where: str, kind: Any, error: Exception) -> BodyNotDecoded:
    """Return the error of a body at ``where`` (topic, broker, queue and offset) that is no ``kind``."""
    name = getattr(kind, "__name__", None) if isinstance(kind, type) else None
    # all in the first text: it is what the repr of an error shows, which becomes a dead letter's last error
    return BodyNotDecoded(
        f"body of {where} is no {name or kind}: {one_line(error)}", hint="compare what its producer sends"
    )


def one_line(error: BaseException) -> str:
    """Return the text of an error in one line of limited length; pydantic's have many."""
    return "; ".join(line.strip() for line in str(error).splitlines() if line.strip())[:REASON_CHARS_MAX]
