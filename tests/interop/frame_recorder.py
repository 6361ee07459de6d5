"""Keeps the frames of PocketMQ's clients in this process and of RocketMQ's servers, as the bytes they were on the wire.

    with recorded_frames() as frames:
        ...                                     # clients talk to RocketMQ
    write_frames(path, frames.values())

Lives here: catching the bytes at the client's channel.
"""

import base64
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from pocketmq.remoting.channel import ClientChannel
from pocketmq.remoting.codec import peek_response
from pocketmq.remoting.codes import request_name
from pocketmq.remoting.errors import HeaderIllegal
from pocketmq.remoting.frame import PREFIX, PREFIX_BYTES, Buffer, Frame, FrameDecoder, new_scratch
from pocketmq.remoting.frame_budget import FrameBudget
from pocketmq.remoting.output import Output
from tests.remoting.recorded_frames import Key, RecordedFrame

FRAME_BYTES_MAX = 6_000


def whole_frame(frame: Frame) -> bytes:
    """Return the bytes of a received frame."""
    header, body = bytes(frame.header), bytes(frame.body)
    prefix = bytearray(PREFIX_BYTES)
    PREFIX.pack_into(prefix, 0, 4 + len(header) + len(body), frame.serialize_type << 24 | len(header))
    return bytes(prefix) + header + body


@contextmanager
def recorded_frames() -> Iterator[dict[Key, RecordedFrame]]:
    """Catch the frames of this thread's clients until the block ends.

    Clients in other threads are not meant: the consumer of a session-wide fixture may still pull from a PocketMQ.
    """
    here = threading.get_ident()
    found: dict[Key, RecordedFrame] = {}
    asked: dict[int, int] = {}
    add, take = Output.add, ClientChannel._take

    def keep(data: bytes, request_code: int, by: str, answer_code: int, serialize_type: int) -> None:
        if len(data) <= FRAME_BYTES_MAX:
            text = base64.b64encode(data).decode()
            frame = RecordedFrame(request_name(request_code), request_code, by, answer_code, serialize_type, text)
            found.setdefault(frame.key, frame)

    def note_sent(output: Output, buffers: Sequence[Buffer]) -> None:
        if threading.get_ident() != here:
            add(output, buffers)
            return
        data = b"".join(map(bytes, buffers))
        (frame,) = FrameDecoder(new_scratch(), FrameBudget()).feed(data)
        is_response, opaque, code = peek_response(frame)
        if is_response:
            keep(data, asked.get(opaque, 0), "client", code, frame.serialize_type)
        else:
            keep(data, code, "client", -1, frame.serialize_type)
        add(output, buffers)

    def note_taken(channel: ClientChannel, frame: Frame) -> None:
        if threading.get_ident() != here:
            take(channel, frame)
            return
        try:
            is_response, opaque, code = peek_response(frame)
        except HeaderIllegal:
            take(channel, frame)
            return
        if is_response:
            request_code = channel._pending.code_of(opaque)
            if request_code is not None:
                keep(whole_frame(frame), request_code, "server", code, frame.serialize_type)
        else:
            asked[opaque] = code
            keep(whole_frame(frame), code, "server", -1, frame.serialize_type)
        take(channel, frame)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Output, "add", note_sent)
        patch.setattr(ClientChannel, "_take", note_taken)
        yield found
