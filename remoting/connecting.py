"""A client's connect, plain or with TLS, and the words for its failures.

Lives here: ``connect``.
"""

import asyncio
import os
import ssl
from collections.abc import Callable
from typing import Final

from pocketmq.common.clock import Clock
from pocketmq.remoting.errors import ConnectFailed
from pocketmq.remoting.security.client_security import ClientSecurity

_HINT: Final = "is the server running, and the address right?"
_HINT_PLAIN: Final = "is TLS switched on there? RocketMQ's servers can switch it off; without tls= the client is plain"
_HINT_TRUST: Final = (
    "give the CA that signed it, tls=TLS(ca=...); if it names another host, tls=TLS(server_hostname=...)"
)


async def connect(
    address: str,
    protocol: Callable[[], asyncio.BufferedProtocol],
    *,
    timeout_ms: int,
    linger_ms: int,
    security: ClientSecurity,
    clock: Clock,
) -> None:
    """Connect ``protocol`` to ``address``, TLS handshake included, within ``timeout_ms``. Raise ``ConnectFailed``.

    There is no way back from TLS to a plain connection. ``linger_ms``: how long a closing TLS connection waits for
    the server's last word.
    """
    loop = asyncio.get_running_loop()
    started_ns = clock.monotonic_ns()

    def failed(why: str, hint: str = _HINT) -> ConnectFailed:
        elapsed_ms = (clock.monotonic_ns() - started_ns) // 1_000_000
        error = ConnectFailed(f"cannot connect to {address}", why=f"{why} (after {elapsed_ms} ms)", hint=hint)
        error.reason = why
        return error

    try:
        host, _, port = address.rpartition(":")
        host, port_number = host.strip("[]"), int(port)
        if not 0 < port_number < 65_536:  # uvloop would cut it to 16 bits
            raise ValueError(port)
        async with asyncio.timeout(timeout_ms / 1000):
            if security.context is None:
                await loop.create_connection(protocol, host, port_number)
            else:
                await loop.create_connection(
                    protocol,
                    host,
                    port_number,
                    ssl=security.context,
                    server_hostname=security.server_hostname or host,
                    ssl_shutdown_timeout=linger_ms / 1000,
                )
    except TimeoutError as error:
        raise failed(f"no answer within {timeout_ms} ms") from error
    except ssl.SSLCertVerificationError as error:
        raise failed(f"its certificate is refused: {error.verify_message}", _HINT_TRUST) from error
    except ssl.SSLError as error:
        if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
            raise failed("it does not speak TLS", _HINT_PLAIN) from error
        raise failed(f"no TLS with it: {error.reason or error.strerror}", "what does the server's log say?") from error
    except OSError as error:
        why = os.strerror(error.errno) if isinstance(error, ConnectionError) and error.errno else error.strerror
        if security.context is not None and isinstance(error, ConnectionResetError | ConnectionAbortedError):
            detail = why or str(error)  # uvloop gives none
            text = "it closed the connection during the TLS handshake"
            raise failed(f"{text}: {detail}" if detail else text, _HINT_PLAIN) from error
        raise failed(why or str(error)) from error
    except (ValueError, OverflowError) as error:  # of the address; a UnicodeError is one
        raise ConnectFailed(f"cannot connect to {address!r}", why="it is not host:port") from error
