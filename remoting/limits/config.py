"""Settings of the limits: section ``[limits]``.

Lives here: ``LimitsConfig``.
"""

import msgspec

from pocketmq.remoting.limits.user_limits import LIMIT_MAX, RATES, UserLimits

BURST_MS_MAX = 60_000


class LimitsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What one client, one address and one user may ask of a server. All are ours; 0 is no limit, and the default.

    A client is one connection. The limits of a user need ``auth.authentication_enabled``; they hold for all connections
    of the user together, except super users', and a user can have others (``pocketmq user update --quota``).
    """

    user_bytes_in_per_second: int = 0
    """Bytes of frames that all connections of a user may send in a second; above it sends are refused."""
    user_messages_in_per_second: int = 0
    """Messages that a user may send in a second, those of batches one by one."""
    user_bytes_out_per_second: int = 0
    """Bytes of messages that a user's pulls may get in a second; above it pulls wait."""
    user_messages_out_per_second: int = 0
    """Messages that a user's pulls may get in a second."""
    address_bytes_in_per_second: int = 0
    """Bytes of frames that all connections from an address may send in a second."""
    address_messages_in_per_second: int = 0
    """Messages that an address may send in a second."""
    address_bytes_out_per_second: int = 0
    """Bytes of messages that an address's pulls may get in a second."""
    address_messages_out_per_second: int = 0
    """Messages that an address's pulls may get in a second."""
    client_bytes_in_per_second: int = 0
    """Bytes of frames that one connection may send in a second."""
    client_messages_in_per_second: int = 0
    """Messages that one connection may send in a second."""
    client_bytes_out_per_second: int = 0
    """Bytes of messages that one connection's pulls may get in a second."""
    client_messages_out_per_second: int = 0
    """Messages that one connection's pulls may get in a second."""
    burst_mills: int = 1_000
    """How much may come at once after a pause, in ms of each rate. What is larger passes as well, and is paid off
    before the next."""
    user_connections_max: int = 0
    """Maximum number of connections of a user (of an address: ``remoting.connections_per_address_max``)."""
    user_topics_max: int = 0
    """Maximum number of topics that a user has created, on this broker."""
    user_groups_max: int = 0
    """Maximum number of consumer groups that a user has created, on this broker."""
    connects_per_second: int = 0
    """New connections that a server takes in a second; more are closed at once."""
    connects_per_address_per_second: int = 0
    """New connections of one address that a server takes in a second, this machine's included."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not 0 <= value <= LIMIT_MAX:
                raise ValueError(f"limits.{name}={value} must be from 0 to {LIMIT_MAX}")
        if not 1 <= self.burst_mills <= BURST_MS_MAX:
            raise ValueError(f"limits.burst_mills={self.burst_mills} must be from 1 to {BURST_MS_MAX}")

    @property
    def of_users(self) -> UserLimits:
        """The limits of a user who has none of its own."""
        rates = {f"{rate}_per_second": getattr(self, f"user_{rate}_per_second") for rate in RATES}
        return UserLimits(
            **rates,
            connections_max=self.user_connections_max,
            topics_max=self.user_topics_max,
            groups_max=self.user_groups_max,
        )
