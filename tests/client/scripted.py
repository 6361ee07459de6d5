"""Answers of scripted brokers to sends."""

from typing import Any, Final

from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.send import NativeAppendResponseHeader

NATIVE: Final = RequestCode.NATIVE_APPEND
TYPED: Final = RequestCode.SEND_MESSAGE_V2


def store(connection: Any, request: Any) -> Any:
    """Answer a native append as if all were stored."""
    results = [(0, 5, [(1000, count)], "") for _, _, count in request.header.sections]
    return ResponseCode.SUCCESS, "", NativeAppendResponseHeader(1, results), b""


def silent(connection: Any, request: Any) -> Any:
    """Let the request wait."""
    return None
