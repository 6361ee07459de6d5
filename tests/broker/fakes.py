"""Stand-ins for the edges of the broker, for tests of its cores."""

from typing import Any

from pocketmq.remoting.codec import Request, Response, decode_response
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frame import FRAME_BYTES_MAX, SCRATCH_BYTES, FrameDecoder, new_scratch
from pocketmq.remoting.frame_budget import FrameBudget


class FakeConnection:
    """Keeps the bytes that a connection would write."""

    def __init__(self, remote: str = "127.0.0.1:5000") -> None:
        self.remote = remote
        self.remote_host = bytes([127, 0, 0, 1]) + (5000).to_bytes(4, "big")
        self.closed = False
        self.over_high_water = False
        self.quota = None
        self.responses: list[Any] = []
        self.writes = 0
        self.oneways: list[Any] = []

    def respond(self, buffers: Any) -> None:
        self.writes += 1
        self.responses.append(buffers)

    def respond_all(self, responses: Any) -> None:
        self.writes += 1
        self.responses.extend(responses)

    def send_oneway(self, code: int, header: Any, body: bytes) -> None:
        self.oneways.append((code, header, body))

    def close(self, reason: str = "") -> None:
        self.closed = True


def make_request(
    code: int = RequestCode.GET_BROKER_RUNTIME_INFO,
    header: Any = None,
    body: bytes = b"",
    opaque: int = 1,
    oneway: bool = False,
) -> Request:
    return Request(int(code), opaque, oneway, 409, 3, 2, header, body, {})


def parse_response(buffers: Any, request_code: Any) -> Response:
    """Decode one response as a client would."""
    decoder = FrameDecoder(new_scratch(), FrameBudget(FRAME_BYTES_MAX + SCRATCH_BYTES))
    frames = decoder.feed(b"".join(bytes(buffer) for buffer in buffers))
    assert len(frames) == 1
    return decode_response(frames[0], int(request_code))


class DirectMailbox:
    """Runs posts at once, in the caller's thread."""

    def post(self, callback: Any, *args: Any) -> None:
        callback(*args)
