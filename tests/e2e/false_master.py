"""A node that pretends to be a slave's master, and serves hostile tables.

Lives here: ``FalseMaster``: registered at the name server with the master's epoch and owner, which anybody may read.
"""

import asyncio
import contextlib
import json
import time
from pathlib import Path
from typing import Any, Self

from pocketmq.common.clock import SystemClock
from pocketmq.common.events import NullLog
from pocketmq.remoting.codec import Request, encode_response
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.body import DataVersion, encode_body
from pocketmq.remoting.protocol.ha import HaStatusBody
from pocketmq.remoting.protocol.hello import Announcement
from pocketmq.remoting.protocol.namesrv import RegisterBrokerRequestHeader
from pocketmq.remoting.server import Connection, RemotingServer, ServerConfig
from pocketmq.store.ha import wire
from tests.e2e.nodes import BROKER_NAME
from tests.e2e.strangers import channel_to


class FalseMaster:
    """Answers what the slave asks, as ``master`` would; every table names what lies outside the store."""

    def __init__(self, namesrv: str, master: HaStatusBody, victim: Path) -> None:
        self._namesrv = namesrv
        self._victim = victim
        self.asked: list[int] = []
        self._stack = contextlib.AsyncExitStack()
        self._status = master
        self._master = master

    async def __aenter__(self) -> Self:
        config = ServerConfig()
        server = RemotingServer(
            config,
            self,
            announce=lambda connection: Announcement(native=0, frame_bytes_max=config.frame_bytes_max),
            log=NullLog(),
            clock=SystemClock(),
        )
        await server.start("127.0.0.1", 0)
        self._stack.push_async_callback(server.stop, 0)
        ha = await asyncio.start_server(self._serve_slave, "127.0.0.1", 0)
        self._stack.callback(ha.close)
        ha_address = f"127.0.0.1:{ha.sockets[0].getsockname()[1]}"
        self._status = HaStatusBody(
            broker_name=BROKER_NAME,
            address=f"127.0.0.1:{server.port}",
            role="SYNC_MASTER",
            node_id=self._master.node_id,
            epoch=self._master.epoch,
            owner=self._master.owner,
            epochs=self._master.epochs,
            topics_version=DataVersion(1 << 40, 7),
            groups_version=DataVersion(1 << 40, 7),
            offsets_generation=1 << 40,
        )
        channel = await self._stack.enter_async_context(channel_to(self._namesrv))
        header = RegisterBrokerRequestHeader(
            *(BROKER_NAME, self._status.address, "DefaultCluster", ha_address, 0),
            epoch=self._master.epoch,
            epoch_owner=self._master.owner,
        )
        answer = await channel.request(RequestCode.REGISTER_BROKER, header, timeout_ms=5000)
        assert answer.code == 0, answer
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    # ---- the broker's port

    def on_open(self, connection: Connection) -> None: ...

    def on_close(self, connection: Connection, reason: str) -> None: ...

    def on_request(self, connection: Connection, request: Request) -> None:
        self.asked.append(request.code)
        kind = request.serialize_type
        connection.respond(
            encode_response(0, request.opaque, request.code, body=self._body(request.code), serialize_type=kind)
        )

    def _body(self, code: int) -> bytes:
        names = [f"../../../{self._victim.name}", str(self._victim), "..", ".", "", "x\0y", "T/../../../etc", "\x1b[2J"]
        version = {"timestamp": 1 << 40, "counter": 7}
        if code == RequestCode.HA_STATUS:
            return encode_body(self._status)
        content: dict[str, Any] = {}
        if code == RequestCode.GET_ALL_TOPIC_CONFIG:
            table = {name: {"topicName": name, "readQueueNums": 4, "writeQueueNums": 4} for name in names}
            content = {"topicConfigTable": table, "dataVersion": version, "deletedTopics": dict.fromkeys(names, 0)}
        elif code == RequestCode.GET_ALL_CONSUMER_OFFSET:
            content = {"offsetTable": {f"{name}@{name}": {"0": -5, "-1": 1 << 62} for name in names}}
        elif code == RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG:
            table = {name: {"groupName": name} for name in names}
            content = {"subscriptionGroupTable": table, "dataVersion": version}
        elif code == RequestCode.GET_ALL_DELAY_OFFSET:
            content = {"offsetTable": {"-1": 5, "1": -5, "99999999": 1 << 62}, "endOffset": 0}
        return json.dumps(content).encode()

    # ---- the HA port

    async def _serve_slave(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = wire.FrameDecoder(frozenset({wire.HELLO, wire.ACK}))
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readexactly(len(wire.PREAMBLE))
            hello: Any = None
            while hello is None:
                hello = next(iter(decoder.feed(await reader.read(1 << 16))), None)
            master = self._master
            welcome = wire.Welcome(
                epochs=[(each.number, each.owner, each.start_offset) for each in master.epochs],
                epoch=master.epoch,
                owner=master.owner,
                role="SYNC_MASTER",
                min_offset=0,
                end_offset=hello.end_offset,
                start_offset=hello.end_offset,
                common_offset=hello.end_offset,
                address=self._status.address,
                in_sync_replicas=2,
                total_replicas=2,
                segment_bytes=hello.segment_bytes,
            )
            writer.write(wire.encode_welcome(welcome))
            while not writer.is_closing():
                now_ms = int(time.time() * 1000)
                writer.write(wire.encode_heartbeat(wire.Heartbeat(hello.end_offset, 0, now_ms)))
                await writer.drain()
                await asyncio.sleep(0.1)
        writer.close()
