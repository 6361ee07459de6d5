"""Judges whether the other end of a connection still answers. No I/O, no clock of its own.

Lives here: ``Silence``, and the options by which the kernel notices a peer that is gone.

A connection can be open and dead: its network is cut, its server hangs, or one wrong length field makes the decoder
swallow all answers that follow. Then every request times out, and only a new connection helps.
"""

import asyncio
import socket
from typing import Final

KEEPALIVE_IDLE_S: Final = 30
KEEPALIVE_INTERVAL_S: Final = 5
KEEPALIVE_COUNT: Final = 3
USER_TIMEOUT_MS: Final = 15_000
"""How long sent bytes may stay without acknowledgement by the peer (TCP_USER_TIMEOUT, tcp(7)); Linux: 15 minutes."""


class Silence:
    """One connection's timeouts since its last complete frame.

    ``timeouts_max`` of them within a silence of at least ``silent_ms_min`` end the connection; so does a frame that is
    not complete after ``half_frame_ms_max``. A silence begins with the first of those requests, not with the last
    frame: a connection may have been idle before. So a server whose disk stalls for some seconds keeps its connections.
    """

    __slots__ = (
        "_asked_ns",
        "_half_ns",
        "_half_ns_max",
        "_silent_ns_min",
        "_timeouts",
        "_timeouts_max",
        "frame_count",
        "heard_ns",
    )

    def __init__(self, timeouts_max: int, silent_ms_min: int, half_frame_ms_max: int) -> None:
        self._timeouts_max = timeouts_max
        self._silent_ns_min = silent_ms_min * 1_000_000
        self._half_ns_max = half_frame_ms_max * 1_000_000
        self._timeouts = 0
        self._asked_ns = 0  # when the first of the timed-out requests was sent
        self._half_ns = 0  # when a part of a frame was first seen; 0: there is none
        self.frame_count = -1
        """Complete frames when last looked at; the connection compares it, since a busy one is looked at often."""
        self.heard_ns = 0

    def heard(self, now_ns: int, frame_count: int) -> None:
        """Note that frames have become complete since the last look."""
        self.frame_count = frame_count
        self.heard_ns = now_ns
        self._timeouts = 0
        self._half_ns = 0

    def judge(self, now_ns: int, half: bool, expired_count: int, asked_ns: int) -> str:
        """Return why the connection is of no use any more; "" while it may be.

        To be called where no frame has become complete since the last look: ``half`` says whether a part of one has
        been received, ``expired_count`` requests have just timed out, the first of which was sent at ``asked_ns``.
        """
        if expired_count and not self._timeouts:
            self._asked_ns = asked_ns
        self._timeouts += expired_count
        silent_ns = now_ns - max(self.heard_ns, self._asked_ns)
        if self._timeouts >= self._timeouts_max and silent_ns >= self._silent_ns_min:
            return f"no whole frame for {silent_ns // 1_000_000} ms, and {self._timeouts} requests without an answer"
        if not half:
            self._half_ns = 0
        elif not self._half_ns:
            self._half_ns = now_ns
        elif now_ns - self._half_ns > self._half_ns_max:
            return f"a frame was not complete after {(now_ns - self._half_ns) // 1_000_000} ms"
        return ""


def watch_peer(transport: asyncio.BaseTransport) -> None:
    """Let the kernel end a connection whose peer has gone without a word; as far as the system can do it."""
    connection = transport.get_extra_info("socket")
    if connection is None:
        return
    options = (
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPIDLE", None), KEEPALIVE_IDLE_S),
        (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPINTVL", None), KEEPALIVE_INTERVAL_S),
        (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPCNT", None), KEEPALIVE_COUNT),
        (socket.IPPROTO_TCP, getattr(socket, "TCP_USER_TIMEOUT", None), USER_TIMEOUT_MS),
    )
    for level, option, value in options:
        if option is not None:
            try:
                connection.setsockopt(level, option, value)
            except OSError:  # not this kind of socket
                return
