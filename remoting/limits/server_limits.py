"""The limits of one server: the buckets of its addresses and users, and who may connect.

    limits = ServerLimits(config, clock)
    limits.admits(host)                          # may it connect?
    limits.opened(connection)                    # gives it its quota, or None
    limits.speaks(connection, "app", of_app)     # its user is known now

Lives here: ``ServerLimits``.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pocketmq.common import refusals
from pocketmq.common.bounds import bounded
from pocketmq.common.clock import Clock
from pocketmq.remoting.limits.config import LimitsConfig
from pocketmq.remoting.limits.quota import Buckets, Quota, QuotaExceeded, exceeded
from pocketmq.remoting.limits.token_bucket import Limit, TokenBucket, take_all
from pocketmq.remoting.limits.user_limits import RATES, UserLimits

HOSTS_MAX: Final = 10_000
"""Addresses whose buckets are kept; of more, the one that connected longest ago is forgotten."""
USERS_MAX: Final = 10_000
BARRED_MAX: Final = 4_096
RETRY_CONNECT_MS: Final = 1_000
"""A user's connection that ends makes room for another one: nobody knows when."""
ALL: Final = "this server"
KINDS: Final = (*RATES, "connections", "connects", "logins")
"""Kinds of limits, for metrics."""


class Limited(Protocol):
    """A connection, as its limits see it."""

    host: str
    quota: Quota | None
    quota_user: str
    """Under which name it counts as a user's connection; empty: under none."""


@dataclass(slots=True)
class _User:
    """What a user's connections share."""

    limits: UserLimits
    buckets: Buckets
    connections: int = 0


@bounded("limits by address", limit=HOSTS_MAX, size="hosts", entry_bytes=2_500, when_full="evicts")
@bounded("connects by address", limit=HOSTS_MAX, size="connects", entry_bytes=700, when_full="evicts")
@bounded("limits by user", limit=USERS_MAX, size="users", entry_bytes=2_500, when_full="evicts")
@bounded("addresses that may not connect", limit=BARRED_MAX, size="barred", entry_bytes=300, when_full="evicts")
class ServerLimits:
    """Belongs to the loop's thread, but for ``note``."""

    def __init__(
        self, config: LimitsConfig, clock: Clock, on_refused: Callable[[QuotaExceeded], None] | None = None
    ) -> None:
        """``on_refused`` is called with each refusal of a request, in its thread; it must return at once."""
        self.config = config
        self.of_users = config.of_users
        self._clock = clock
        self._on_refused = on_refused
        self._lock = threading.Lock()
        self._counts_lock = threading.Lock()
        self.counts: dict[str, int] = dict.fromkeys(KINDS, 0)
        """Kind of a limit → refusals since the start. Any thread may read it."""
        self.hosts: dict[str, Buckets] = {}
        """Address → its buckets, the one that connected last at the end."""
        self.connects: dict[str, TokenBucket] = {}
        """Address → its new connections."""
        self.users: dict[str, _User] = {}
        """User → its buckets and connections, the one that came last at the end."""
        self.barred: dict[str, int] = {}
        """Address → until when it may not connect, monotonic ns."""
        now_ns = clock.monotonic_ns()
        rate = config.connects_per_second
        self._all_connects = (TokenBucket(self._connects(rate, ALL, "connects_per_second"), now_ns),) if rate else ()
        self._limits_hosts = any(getattr(config, f"address_{each}_per_second") for each in RATES)
        self._limits_clients = any(getattr(config, f"client_{each}_per_second") for each in RATES)

    def _connects(self, rate: int, whose: str, setting: str) -> Limit:
        return Limit("connects", False, rate, self._burst(rate), whose, f"limits.{setting}")

    def _burst(self, rate: int) -> int:
        return max(1, rate * self.config.burst_mills // 1000)

    # ---- who may connect -------------------------------------------------------------------------------------------

    def admits(self, host: str) -> bool:
        """Count a new connection; False refuses it."""
        rate = self.config.connects_per_address_per_second
        if not (self.barred or rate or self._all_connects):
            return True
        now_ns = self._clock.monotonic_ns()
        until_ns = self.barred.get(host)
        if until_ns is not None:
            if now_ns < until_ns:
                self._count("logins")
                return False
            del self.barred[host]
        buckets = list(self._all_connects)
        if rate:
            of_host = self.connects.pop(host, None)
            if of_host is None:
                setting = "connects_per_address_per_second"
                of_host = TokenBucket(self._connects(rate, f"address {host}", setting), now_ns)
                if len(self.connects) >= HOSTS_MAX:
                    del self.connects[next(iter(self.connects))]
            self.connects[host] = of_host
            buckets.insert(0, of_host)
        if take_all(buckets, 1, 0, now_ns) is not None:
            self._count("connects")
            return False
        return True

    def bar(self, host: str, until_ns: int) -> None:
        """Let an address make no connection until then: it fails to log in too often."""
        if len(self.barred) >= BARRED_MAX:
            self.barred.clear()
        self.barred[host] = until_ns

    # ---- a connection's quota --------------------------------------------------------------------------------------

    def opened(self, connection: Limited) -> None:
        """Give a connection the quota of its address and of itself."""
        if self._limits_hosts or self._limits_clients:
            connection.quota = self._quota(connection, None)

    def speaks(self, connection: Limited, user: str, limits: UserLimits | None) -> QuotaExceeded | None:
        """Learn the user of a connection, or that its limits are others now: they hold from here on. ``limits`` None:
        there are none. Return why the user may have no further connection, or None."""
        if limits is None:
            self._leave(connection)
            connection.quota = self._quota(connection, None)
            return None
        known = self.users.pop(user, None)
        if known is None or known.limits != limits:
            connections = 0 if known is None else known.connections
            buckets = self._buckets(f"user {user}", limits, "user")
            known = _User(limits, buckets, connections)
            if len(self.users) >= USERS_MAX:
                self._forget_a_user()
        self.users[user] = known
        if connection.quota_user != user:
            self._leave(connection)
            limit = limits.connections_max or 0
            if limit and known.connections >= limit:
                error = exceeded(
                    refusals.QUOTA_CONNECTIONS, user, known.connections, limit, retry_after_ms=RETRY_CONNECT_MS
                )
                self.note("connections", error)
                return error
            known.connections += 1
            connection.quota_user = user
        connection.quota = self._quota(connection, known.buckets)
        return None

    def closed(self, connection: Limited) -> None:
        """Stop counting a connection."""
        if connection.quota_user:
            self._leave(connection)

    def _leave(self, connection: Limited) -> None:
        user = self.users.get(connection.quota_user)
        if user is not None and user.connections:
            user.connections -= 1
        connection.quota_user = ""

    def _forget_a_user(self) -> None:
        """Forget one without connections, else the one that came longest ago."""
        unused = (name for name, user in self.users.items() if not user.connections)
        del self.users[next(unused, next(iter(self.users)))]

    def _quota(self, connection: Limited, of_user: Buckets | None) -> Quota | None:
        host, client = connection.host, None
        parts: list[Buckets] = []
        if self._limits_clients:
            if connection.quota is not None:
                client = connection.quota.client
            if client is None:
                client = self._buckets(f"this client of {host}", self.config, "client")
            parts.append(client)
        if self._limits_hosts:
            of_host = self.hosts.pop(host, None)
            if of_host is None:
                of_host = self._buckets(f"address {host}", self.config, "address")
                if len(self.hosts) >= HOSTS_MAX:
                    del self.hosts[next(iter(self.hosts))]
            self.hosts[host] = of_host
            parts.append(of_host)
        if of_user is not None:
            parts.append(of_user)
        inbound = [bucket for part in parts for bucket in part.inbound]
        outbound = [bucket for part in parts for bucket in part.outbound]
        return Quota(inbound, outbound, client, self._lock, self.note) if inbound or outbound else None

    def _buckets(self, whose: str, limits: Any, scope: str) -> Buckets:
        """Return the buckets of a scope; ``limits`` has a field for each rate, with the scope before it or not."""
        now_ns = self._clock.monotonic_ns()
        made = Buckets()
        for kind in RATES:
            name = f"{kind}_per_second"
            setting = f"limits.{scope}_{name}"
            rate = getattr(limits, name if isinstance(limits, UserLimits) else f"{scope}_{name}")
            if rate:
                limit = Limit(kind, kind.startswith("bytes"), rate, self._burst(rate), whose, setting)
                side = made.inbound if kind.endswith("_in") else made.outbound
                side.append(TokenBucket(limit, now_ns))
        return made

    # ---- refusals --------------------------------------------------------------------------------------------------

    def note(self, kind: str, error: QuotaExceeded) -> None:
        """Count the refusal of a request. Any thread."""
        self._count(kind)
        if self._on_refused is not None:
            self._on_refused(error)

    def _count(self, kind: str) -> None:
        with self._counts_lock:
            self.counts[kind] += 1
