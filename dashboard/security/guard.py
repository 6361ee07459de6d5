"""The outermost layer: which names the dashboard answers to, how large a request may be, and its security headers.

A page of another site can make a visitor's browser send requests to this port, and can let a name of its own lead to
127.0.0.1 (DNS rebinding): so a request whose Host is neither an address, which no site can take, nor one of the allowed
names is refused before anything else, as is what another site's page loads or asks for.

Lives here: ``Guard``, ``host_of``.
"""

import ipaddress
from collections.abc import Collection
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY_BYTES_MAX: Final = 5 << 20
"""A form's: a message of 4 MiB, and the rest."""
LOOPBACK_NAMES: Final = frozenset({"localhost"})
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
"""``same-origin``: a browser that sends no Referer at all sends no Origin with a form either."""


class BodyTooLarge(Exception):
    """A request has more bytes than any form here."""


def host_of(header: str) -> str:
    """Return the name in a Host header, without its port, in small letters; empty if it is none."""
    header = header.strip().lower()
    if header.startswith("["):
        name, bracket, rest = header.partition("]")
        return name + bracket if bracket and (not rest or rest[1:].isdigit()) else ""
    name, _, port = header.partition(":")
    return name.rstrip(".") if not port or port.isdigit() else ""


class Guard:
    """ASGI middleware. ``hosts``: names that are allowed beside ``localhost`` and addresses."""

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts) | LOOPBACK_NAMES

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check one request and pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        host = host_of(headers.get("host", ""))
        if not host or (host not in self._hosts and not _is_address(host)):
            text = "this dashboard does not answer to that name; --allow-host NAME allows it\n"
            await PlainTextResponse(text, 421, dict(HEADERS))(scope, receive, send)
            return
        if headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            await PlainTextResponse("not for pages of other sites\n", 403, dict(HEADERS))(scope, receive, send)
            return
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > BODY_BYTES_MAX:
            await PlainTextResponse("the request is too large\n", 413, dict(HEADERS))(scope, receive, send)
            return
        taken = 0

        async def bounded() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > BODY_BYTES_MAX:
                raise BodyTooLarge
            return message

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                found = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    found[name] = value
                found.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            await self._app(scope, bounded, with_headers)
        except BodyTooLarge:
            await PlainTextResponse("the request is too large\n", 413, dict(HEADERS))(scope, receive, send)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True
