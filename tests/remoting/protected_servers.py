"""Servers that want credentials: RocketMQ's of both generations, PocketMQ's, and a front that adds TLS to any."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

from pocketmq.common.errors import PocketMQError
from pocketmq.remoting.codec import Request, decode_request, encode_response
from pocketmq.remoting.codec_binary import decode_binary
from pocketmq.remoting.codec_json import decode_json
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.errors import AuthenticationFailed
from pocketmq.remoting.frame import JSON, Frame, FrameDecoder, new_scratch
from pocketmq.remoting.frame_budget import FrameBudget
from pocketmq.remoting.protocol.authenticate import AuthenticateRequestHeader, AuthenticateResponseHeader
from pocketmq.remoting.security.credentials import Credentials
from pocketmq.remoting.security.proof import client_proof, is_proof, server_proof
from pocketmq.remoting.security.signature import ACCESS_KEY, verify

ALICE = Credentials("alice", "alice-secret")
CERTIFICATES = Path(__file__).parent / "security" / "certificates"

Refusal = Callable[[dict[str, str], bytes], tuple[int, str] | None]
"""Takes the ext fields and the body of a request; returns code and text of the refusal, or None."""


def by_acl_1(fields: dict[str, str], body: bytes) -> tuple[int, str] | None:
    """RocketMQ 4.9.7 with ``aclEnable=true``: the texts that its broker answers."""
    name = fields.get(ACCESS_KEY)
    text = ""
    if not name:
        text = "No accessKey is configured"
    elif name != ALICE.access_key:
        text = f"No acl config for {name}"
    elif not verify(ALICE.secret_key, fields, body):
        text = f"Check signature failed for accessKey={name}"
    if not text:
        return None
    where = "org.apache.rocketmq.acl.plain.PlainPermissionManager.validate(PlainPermissionManager.java:663)"
    return ResponseCode.SYSTEM_ERROR, f"org.apache.rocketmq.acl.common.AclException: {text}, {where}"


def by_acl_2(fields: dict[str, str], body: bytes) -> tuple[int, str] | None:
    """RocketMQ 5.3.3 with ``authenticationEnabled=true``."""
    name = fields.get(ACCESS_KEY)
    text = ""
    if not name:
        text = "username cannot be null."
    elif name != ALICE.access_key:
        text = f"User:{name} is not found."
    elif not verify(ALICE.secret_key, fields, body):
        text = "check signature failed."
    return (ResponseCode.NO_PERMISSION, text) if text else None


class ProtectedRocketMQ:
    """A broker of RocketMQ's: no announcement, no msgpack; it checks a request before it looks at its code."""

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal
        self.requests: list[Request] = []
        """Those that passed, oneways among them."""
        self.refused = 0
        self.drops: set[int] = set()
        """Codes that pass and get no answer."""
        self.connections = 0
        self._server: asyncio.Server
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self, context: ssl.SSLContext | None = None) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        decoder = FrameDecoder(new_scratch(), FrameBudget())
        try:
            while data := await reader.read(65536):
                for frame in decoder.feed(data):
                    kind = frame.serialize_type
                    raw = decode_request(frame)
                    code, remark = self._answer(raw, fields_of(frame), bytes(raw.body))
                    if not raw.oneway and raw.code not in self.drops:
                        writer.write(b"".join(encode_response(code, raw.opaque, 0, remark=remark, serialize_type=kind)))
        except ConnectionError:
            pass
        writer.close()

    def _answer(self, request: Request, fields: dict[str, str], body: bytes) -> tuple[int, str]:
        refused = self.refusal(fields, body)
        if refused is not None:
            self.refused += 1
            return refused
        self.requests.append(request)
        if request.code in (RequestCode.HELLO, RequestCode.AUTHENTICATE):
            return ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported"
        if request.code == RequestCode.QUERY_MESSAGE:
            return ResponseCode.QUERY_NOT_FOUND, "can not find message"
        return ResponseCode.SUCCESS, ""

    async def stop(self) -> None:
        self._server.close()
        for writer in self._writers:
            await closed(writer)
        await self._server.wait_closed()


async def closed(writer: asyncio.StreamWriter) -> None:
    """Close a connection and wait for its end, whatever that is."""
    writer.close()
    try:
        await writer.wait_closed()
    except OSError:
        pass


def fields_of(frame: Frame) -> dict[str, str]:
    """Return the ext fields of a request as they came."""
    decode = decode_json if frame.serialize_type == JSON else decode_binary
    return decode(frame.header)[-1]


class ProofOfAlice:
    """A guard that lets alice in; ``lies``: the server's own proof is wrong."""

    def __init__(self, *, lies: bool = False) -> None:
        self.lies = lies
        self.proofs = 0

    def nonce(self, connection: Connection) -> str:
        return f"nonce of {connection.remote}"

    def authenticate(
        self, connection: Connection, header: AuthenticateRequestHeader
    ) -> AuthenticateResponseHeader | PocketMQError:
        self.proofs += 1
        parts = (ALICE.access_key, self.nonce(connection), header.nonce)
        if header.user != parts[0] or not is_proof(header.proof, client_proof(ALICE.secret_key, *parts)):
            return AuthenticationFailed("authentication failed", why=f"user {header.user} or its proof is wrong")
        connection.session = header.user
        secret = "another" if self.lies else ALICE.secret_key
        return AuthenticateResponseHeader(user=header.user, proof=server_proof(secret, *parts))

    def refusal(self, connection: Connection, request: Request) -> PocketMQError | None:
        return None if connection.session else AuthenticationFailed("request refused", why="nobody has authenticated")


def server_context(certificate: str = "server", *, client_ca: str = "") -> ssl.SSLContext:
    """Return a server's TLS; ``client_ca``: clients must have a certificate of it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / f"{certificate}.pem")
    if client_ca:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(CERTIFICATES / f"{client_ca}.pem")
    return context


class TlsFront:
    """Takes TLS connections and hands their bytes to a plain server, and back."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server

    async def start(self, context: ssl.SSLContext) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += writer, inner_writer

        async def copy(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
            try:
                while data := await source.read(65536):
                    to.write(data)
                    await to.drain()
            except ConnectionError:
                pass
            finally:
                to.close()

        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))

    async def stop(self) -> None:
        self._server.close()
        for writer in self._writers:
            await closed(writer)
        await self._server.wait_closed()
