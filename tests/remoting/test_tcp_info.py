"""The kernel's figures of a connection."""

import asyncio
import socket
from types import SimpleNamespace

import pytest
import uvloop

from pocketmq.remoting.tcp_info import TcpInfo, tcp_info

needs_linux = pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="this system has no TCP_INFO")


def both_ways() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname(), timeout=60)
        return client, server.accept()[0]


@needs_linux
def test_bytes_are_counted_in_both_directions() -> None:
    client, served = both_ways()
    client.sendall(bytes(1000))
    while len(served.recv(1000, socket.MSG_PEEK)) < 1000:
        pass
    served.sendall(bytes(10))
    client.recv(10)
    while tcp_info(served).bytes_out < 10:  # the confirmation of the last bytes is on its way
        pass
    info = tcp_info(served)
    assert info.bytes_in == 1000
    assert info.bytes_out == 10
    assert info.rtt_us > 0
    client.close()
    served.close()
    assert tcp_info(served) == TcpInfo()


@needs_linux
def test_a_transport_of_uvloop_tells_them_too() -> None:
    async def main() -> tuple[TcpInfo, TcpInfo]:
        client, served = both_ways()
        reader, writer = await asyncio.open_connection(sock=served)
        client.sendall(b"hello")
        await reader.readexactly(5)
        view = writer.get_extra_info("socket")
        open_info = tcp_info(view)
        writer.transport.abort()
        await asyncio.sleep(0)
        client.close()
        return open_info, tcp_info(view)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        info, after = runner.run(main())
    assert info.bytes_in == 5
    assert after == TcpInfo()


def test_what_cannot_tell_gives_unknown_figures() -> None:
    assert tcp_info(None) == TcpInfo(-1, -1, -1)
    assert tcp_info(SimpleNamespace(getsockopt=lambda *_: b"short")) == TcpInfo()
