"""Settings of the name server.

Lives here: ``NamesrvConfig``.
"""

import msgspec

from pocketmq.common.addresses import parse_listeners
from pocketmq.common.errors import ConfigError
from pocketmq.common.spelling import camel_case


class NamesrvConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the name server binds and how much it keeps. Times in ms.

    Defaults are RocketMQ's (docs/rocketmq.md, "Name server").
    """

    bind_address: str = "127.0.0.1"
    """Address to listen on."""
    listen_port: int = 9876
    """Port for brokers and clients; 0 lets the system choose one."""
    listeners: str = ""
    """Ours: further listeners, ``name=host:port;…``, each with a port of its own. Clients that ask there are told the
    address that a broker advertises under that name (docs/deployment.md)."""
    broker_expired_timeout: int = 120_000
    """A broker that was silent for so long is removed (RocketMQ DEFAULT_BROKER_CHANNEL_EXPIRED_TIME)."""
    scan_not_active_broker_interval: int = 10_000
    """How often the name server looks for silent brokers."""
    brokers_max: int = 10_000
    """Ours: maximum number of brokers."""
    topics_max: int = 1_000_000
    """Ours: maximum number of (topic, broker) entries."""
    topic_queue_nums_max: int = 65_536
    """Ours: queues of one topic on one broker; a registration with more is refused."""
    routes_size_bytes_max: int = 256 << 20
    """Ours: what the route table may take in memory, half of it for the brokers of one connection."""
    broker_takeover_enable: bool = False
    """Ours: whether a registration replaces a broker that lives (RocketMQ's does, by any connection)."""
    broker_answer_timeout: int = 2000
    """Ours: a broker that does not answer for so long is replaced when another one registers in its place."""
    kv_entries_max: int = 10_000
    """Ours: maximum number of entries of the key-value table."""
    kv_size_bytes_max: int = 16 << 20
    """Ours: maximum bytes of the key-value table."""
    epoch_store_dir: str = ""
    """Ours: where the epochs of replicated brokers are kept (docs/replication.md); empty: in memory only."""
    epochs_max: int = 10_000
    """Ours: maximum number of replicated brokers whose epochs are kept."""

    def properties(self, *, listen_port: int) -> bytes:
        """Return GET_NAMESRV_CONFIG's answer, ``name=value`` lines in RocketMQ's spelling; ``listen_port``: the actual
        one if the system chose it."""
        values = {name: getattr(self, name) for name in self.__struct_fields__} | {"listen_port": listen_port}
        values = {name: str(value).lower() if isinstance(value, bool) else value for name, value in values.items()}
        return "".join(f"{camel_case(name)}={value}\n" for name, value in values.items()).encode()

    def named_listeners(self) -> dict[str, tuple[str, int]]:
        """Return the addresses in ``listeners`` by name; raise ``ConfigError`` for an invalid one."""
        hint = "write name=host:port;name=host:port"
        try:
            found = parse_listeners(self.listeners)
        except ValueError as error:
            raise ConfigError("bad setting", why=f"namesrv.listeners: {error}", hint=hint) from error
        if "" in found:
            raise ConfigError("bad setting", why="namesrv.listeners: an address has no name", hint=hint)
        ports = [self.listen_port, *(port for _, port in found.values())]
        if len(set(ports)) < len(ports):
            raise ConfigError(
                "bad setting", why=f"namesrv.listeners={self.listeners}: two listeners have one port", hint=hint
            )
        return found

    def listener_of_port(self) -> dict[str, str]:
        """Return port → name of the further listeners."""
        return {str(port): name for name, (_, port) in self.named_listeners().items()}

    def __post_init__(self) -> None:
        self.named_listeners()
        if not 0 <= self.listen_port <= 65_535:
            raise ConfigError("bad setting", why=f"namesrv.listen_port={self.listen_port} is no port")
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if type(value) is int and name != "listen_port" and value < 1:
                raise ConfigError("bad setting", why=f"namesrv.{name}={value}", hint="at least 1")
