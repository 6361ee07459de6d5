"""Limits of a remoting server: section ``[remoting]``.

Lives here: ``ServerConfig``.
"""

import msgspec

from pocketmq.remoting.frame import FRAME_BYTES_MAX, SCRATCH_BYTES
from pocketmq.remoting.frame_budget import FRAME_BUDGET_BYTES

FRAME_BYTES_MIN = 4096
"""Not even a heartbeat or a route would fit into less."""


INT_MAX = (1 << 31) - 1
"""Largest value: a Java int, RocketMQ's type for these settings."""


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on one peer, and on all of them together."""

    connections_max: int = 10_000
    """Maximum number of connections; more are closed at once."""
    connections_per_address_max: int = 5_000
    """Ours: maximum number of connections of one host; this machine may have ``connections_max``."""
    direct_writers_max: int = 1_000
    """Connections to which other threads may write small answers themselves; each takes a second descriptor."""
    frame_bytes_max: int = FRAME_BYTES_MAX
    """Maximum bytes of one frame (RocketMQ: ``com.rocketmq.remoting.frameMaxLength``)."""
    half_frames_bytes_max: int = FRAME_BUDGET_BYTES
    """Memory for half-received frames, over all connections."""
    half_frame_ms_max: int = 30_000
    """How long one frame may take."""
    write_high_water_bytes: int = 4 * 1024 * 1024
    """A connection with more unread answers is not read."""
    write_low_water_bytes: int = 1024 * 1024
    """A connection that was above the high-water mark is read again below this one."""
    write_hard_limit_bytes: int = 64 * 1024 * 1024
    """A connection with more unread answers is closed."""
    unwritten_bytes_max: int = 128 * 1024 * 1024
    """Unread answers of all connections together; above it the one with most of them is closed."""
    write_blocked_ms_max: int = 30_000
    """A connection that stays above its high-water mark for longer is closed."""
    idle_ms_max: int = 120_000
    """A connection without traffic for so long is closed (RocketMQ: ``serverChannelMaxIdleTimeSeconds``)."""
    client_requests_max: int = 64
    """Unanswered requests to one client: RocketMQ's ``serverAsyncSemaphoreValue``."""
    expire_interval_ms: int = 1_000
    """How often idle, slow and blocked connections are looked for."""
    listen_backlog: int = 1_024
    """Connections that may wait to be accepted."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) <= 0:
                raise ValueError(f"remoting.{name}={getattr(self, name)} must be positive")
            if getattr(self, name) > INT_MAX:
                raise ValueError(f"remoting.{name}={getattr(self, name)} must be at most {INT_MAX}")
        if not FRAME_BYTES_MIN <= self.frame_bytes_max <= FRAME_BYTES_MAX:
            raise ValueError(
                f"remoting.frame_bytes_max={self.frame_bytes_max} must be from {FRAME_BYTES_MIN} to {FRAME_BYTES_MAX}"
            )
        if self.half_frames_bytes_max < self.frame_bytes_max + SCRATCH_BYTES:
            raise ValueError(
                f"remoting.half_frames_bytes_max={self.half_frames_bytes_max} must hold one frame "
                f"({self.frame_bytes_max} bytes) and one read ({SCRATCH_BYTES} bytes)"
            )
        names = ("write_low_water_bytes", "write_high_water_bytes", "write_hard_limit_bytes", "unwritten_bytes_max")
        limits = [getattr(self, name) for name in names]
        if limits != sorted(limits):
            raise ValueError(f"remoting.{', '.join(names)} must not fall")
