"""The name servers of a read or write.

Lives here: ``namesrv_of``, and ``check_hosts``, which finds names that no server of DNS knows before a query waits for
them.
"""

import socket

from pocketmq.client.connection.name_servers import parse_addresses
from pocketmq.common.addresses import parse_address
from pocketmq.common.errors import PocketMQError
from pocketmq.pipeline.errors import OptionIllegal
from pocketmq.pipeline.options import Options


def namesrv_of(options: Options) -> str:
    """Return the option ``namesrv``. Raises ``OptionIllegal`` for anything but ``host:port;host:port``."""
    text = options.text("namesrv")
    hint = "separate servers by a semicolon: host:port;host:port" if "," in text else "write host:port;host:port"
    try:
        for address in parse_addresses(text):
            parse_address(address)
    except (PocketMQError, ValueError) as error:
        why = error.why if isinstance(error, PocketMQError) and error.why else str(error)
        raise OptionIllegal("bad option", why=f"namesrv={text!r}: {why}", hint=hint) from error
    return text


def check_hosts(namesrv: str) -> None:
    """Raise ``OptionIllegal`` if no name server has a host that exists. For the driver: it asks DNS.

    A server of DNS that does not answer, and a host that exists and does not answer, may be there again soon: neither
    is an error here.
    """
    unknown: list[str] = []
    addresses = parse_addresses(namesrv)
    for address in addresses:
        host, port = parse_address(address)
        try:
            socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            if error.errno not in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)):
                return
            unknown.append(host)
        else:
            return
    raise OptionIllegal(
        "bad option",
        why=f"namesrv={namesrv}: DNS knows no {' and no '.join(unknown)}",
        hint="check the name; inside a cluster it may need its domain",
    )
