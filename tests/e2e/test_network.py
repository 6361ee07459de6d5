"""The tests' own links do what they promise; otherwise no test on them would prove anything."""

import asyncio
import subprocess
import sys
from random import Random

import pytest

from tests.e2e.network import HUB, Network, why_not
from tests.e2e.tcp_proxy import TcpProxy

WHY_NOT = why_not()

ECHO = """
import socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((sys.argv[1], 7000))
print("ready", flush=True)
while True:
    data, peer = server.recvfrom(100)
    print(data.decode(), flush=True)
    server.sendto(data, peer)
"""
ASK = """
import socket, sys
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.settimeout(0.3)
client.sendto(sys.argv[2].encode(), (sys.argv[1], 7000))
try:
    print(client.recv(100).decode())
except TimeoutError:
    print("nothing")
"""


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "-")
def test_a_cut_link_loses_packets_in_one_direction() -> None:
    """A one-way cut passes the request and loses the answer; a cut the other way loses the request."""
    with Network("one", "two") as network:
        target = network["two"].address
        server = subprocess.Popen(
            [*network["two"].prefix, sys.executable, "-c", ECHO, target], stdout=subprocess.PIPE, text=True
        )
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n"

            def ask(text: str, host: str = "one") -> str:
                command = [*network[host].prefix, sys.executable, "-c", ASK, target, text]
                return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

            assert ask("a") == "a"
            assert ask("b", HUB) == "b"
            network.cut("two", "one")
            assert ask("c") == "nothing"
            assert ask("d", HUB) == "d"
            network.heal()
            network.cut("one", "two")
            assert ask("e") == "nothing"
            network.heal()
            assert ask("f") == "f"
            network.isolate("two")
            assert ask("g", HUB) == "nothing"
            server.kill()
            said = server.stdout.read().split()
            assert said == ["a", "b", "c", "d", "f"]
        finally:
            server.kill()
            server.wait()
            if server.stdout is not None:
                server.stdout.close()


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1000):
        writer.write(data)
    writer.close()


async def test_the_proxy_delays_cuts_and_harms_only_on_request() -> None:
    """Bytes pass unchanged; a cut holds them back; each kind of damage changes them and is counted."""
    server = await asyncio.start_server(_echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with TcpProxy(f"127.0.0.1:{port}", seed=1) as proxy:
        host, _, at = proxy.address.partition(":")

        async def send(data: bytes) -> bytes:
            reader, writer = await asyncio.open_connection(host, int(at))
            writer.write(data)
            writer.write_eof()
            try:
                async with asyncio.timeout(0.3):
                    return await reader.read(1000)
            except TimeoutError:
                return b"?"
            finally:
                writer.close()

        data = Random(2).randbytes(200)
        assert await send(data) == data
        proxy.down.cut()
        assert await send(data) == b"?"
        proxy.heal()
        proxy.up.damage_share = 1.0
        damaged = await send(data)
        assert len(damaged) == len(data)
        assert damaged != data
        proxy.heal()
        proxy.up.double_share = 1.0
        assert await send(data) == data + data
        assert proxy.up.faults == 2
        proxy.heal()
        assert await send(data) == data
        assert proxy.connections == 5
    server.close()
