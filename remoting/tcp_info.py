"""What the kernel knows about a TCP connection, without any counting of ours (Linux ``TCP_INFO``).

Lives here: ``TcpInfo``, ``tcp_info``.
"""

import socket
import struct
from typing import Any, Final, NamedTuple

_OPTION: Final = getattr(socket, "TCP_INFO", None)
_INFO_BYTES: Final = 136
_RTT: Final = struct.Struct("=I")
_RTT_AT: Final = 68
_BYTES: Final = struct.Struct("=QQ")
_BYTES_AT: Final = 120
"""``tcpi_rtt``, ``tcpi_bytes_acked`` and ``tcpi_bytes_received`` in ``struct tcp_info`` (include/uapi/linux/tcp.h; the
last two since 4.2)."""


class TcpInfo(NamedTuple):
    """``bytes_out``: those that the peer has confirmed; ``rtt_us``: smoothed round trip. -1: not known."""

    bytes_in: int = -1
    bytes_out: int = -1
    rtt_us: int = -1


def tcp_info(sock: Any) -> TcpInfo:
    """Return the figures of an open socket; any thread. Unknown ones on another system and for a closed socket."""
    if _OPTION is None or sock is None:
        return TcpInfo()
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, _OPTION, _INFO_BYTES)
    except (OSError, ValueError, RuntimeError):  # closed meanwhile; uvloop raises the last two
        return TcpInfo()
    if len(info) < _INFO_BYTES:
        return TcpInfo()
    out_bytes, in_bytes = _BYTES.unpack_from(info, _BYTES_AT)
    return TcpInfo(in_bytes, out_bytes, _RTT.unpack_from(info, _RTT_AT)[0])
