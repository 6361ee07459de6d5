"""A retry store in a Redis server (extra ``redis``): messages survive the loss of this machine.

Lives here: ``RedisStore``, its keys.

Keys, all with the hash tag ``{pocketmq-retry:NAME}``, so that a cluster keeps them together:

    …:owner      string   JSON of the process that owns the store (``ownership.Owner``); expires after the lease
    …:m          hash     seq -> payload of an entry that waits
    …:x          hash     seq -> msgpack (lane, order key, payload bytes): read to count at opening
    …:due        zset     due_ms 16 hex · seq 16 hex · ":" · attempts; all scores 0, so Redis sorts by the text
    …:lane:LANE  zset     seq 16 hex · ":" · attempts
    …:seqs       zset seq 16 hex: finds the oldest
    …:g          hash     seq -> msgpack (due_ms, attempts, lane, order key, why, payload), given up

A write is one transaction that takes effect only while the token is ours. What it survives depends on the server's
``appendonly`` and ``appendfsync``; a server that may evict keys (a ``maxmemory-policy`` other than ``noeviction``) is
refused.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from pocketmq.client.durable.entry import Entry, entry_bytes
from pocketmq.client.durable.errors import (
    RetryStoreCorrupt,
    RetryStoreError,
    RetryStoreFull,
    RetryStoreLocked,
    RetryStoreRefused,
    RetryStoreUnreachable,
)
from pocketmq.client.durable.ownership import SILENT_SHARE, Owner, Tokens
from pocketmq.client.durable.store import Changes, Summary
from pocketmq.client.libraries import library, translated
from pocketmq.common.clock import Clock
from pocketmq.common.errors import DECODE_ERRORS

if TYPE_CHECKING:
    from redis import Redis

SCAN_COUNT: Final = 1_000
"""Entries per request while the store is counted."""
RENEWED_MS: Final = 20
"""A lease whose end moved by more than this was renewed; less is rounding and clock drift."""
_TIME_DIGITS: Final = 16


class RedisStore:
    """One name on one server, owned by one process through a lease."""

    def __init__(self, url: str, name: str, *, clock: Clock, timeout_ms: int, lease_ms: int) -> None:
        self._redis = redis = library("redis", "redis", "retry store refused")
        self._guard = partial(translated, (redis.RedisError, OSError, ValueError), self._translated)
        self._url = url
        self._clock = clock
        self._lease_ms = lease_ms
        self._timeout_s = timeout_ms / 1000
        self._prefix = f"{{pocketmq-retry:{name}}}:"
        parts = urlsplit(url)
        self._name = f"{parts.scheme}://{parts.hostname}:{parts.port or 6379}{parts.path}?name={name}"
        self._token = b""
        """The value of ``owner`` while the store is ours."""
        self._tokens = Tokens()
        """A lease under one of them is still ours: the server was unreachable when it was to be given back, or took
        it and its answer was lost."""
        self._seen = b""
        """The owner found last; its lease then ended at ``_ends_ns`` at the latest. ``_lives``: it renewed the
        lease."""
        self._ends_ns = 0
        self._lives = False
        self._client: Redis | None = None

    @property
    def name(self) -> str:
        """The URL without a password."""
        return self._name

    @property
    def durability(self) -> str:
        """What a written entry survives."""
        return "kept in Redis: it survives the loss of this machine, and of Redis as its persistence settings say"

    # -- life --------------------------------------------------------------------------------------------------

    def open(self, *, read_only: bool = False) -> Summary:
        """Connect, take the lease and count the entries.

        Raises ``RetryStoreLocked`` while another process has the lease; Redis ends that of a dead process after
        ``left_ms``.
        """
        assert self._client is None
        try:
            with self._guard("retry store not opened"):
                # No retries in the client: a write that timed out may have been carried out, and must not be repeated.
                client = self._client = self._redis.Redis.from_url(
                    self._url, socket_timeout=self._timeout_s, socket_connect_timeout=self._timeout_s, retry=None
                )
                if not read_only:
                    self._refuse_eviction(client)
                    self._take(client)
                return self._summary(client)
        except RetryStoreError:
            self.close()
            raise

    def _take(self, client: "Redis") -> None:
        """Become the owner, or raise ``RetryStoreLocked``."""
        token = Owner.new(self._clock, self._lease_ms, self._tokens.new()).encode()
        taken = client.set(self._prefix + "owner", token, nx=True, px=self._lease_ms)
        if not taken and not self._retake(client, token):
            raise self._owned(client)
        self._token, self._seen, self._lives = token, b"", False

    def _retake(self, client: "Redis", token: bytes) -> bool:
        """Replace a lease of our own, if it is still there."""
        owner = self._prefix + "owner"
        try:
            with client.pipeline(transaction=True) as opened:
                pipe: Any = opened
                pipe.watch(owner)
                found = pipe.get(owner)
                if found is None or not self._tokens.made(Owner.decode(found).token):
                    return False
                pipe.multi()
                pipe.set(owner, token, px=self._lease_ms)
                pipe.execute()
        except self._redis.WatchError:
            return False
        return True

    def _owned(self, client: "Redis") -> RetryStoreLocked:
        """Return the error that names the owner and its state: every write and renewal moves the end of its lease."""
        before_ns = self._clock.monotonic_ns()
        with client.pipeline(transaction=True) as opened:
            pipe: Any = opened
            pipe.get(self._prefix + "owner")
            pipe.pttl(self._prefix + "owner")
            value, left_ms = pipe.execute()
        after_ns = self._clock.monotonic_ns()
        if value is None:
            return self._locked("another process", "it ended at this moment", 1)
        owner = Owner.decode(value)
        who = str(owner)
        if left_ms < 0:
            return self._locked(who, "without an end, which this program never writes", 0)
        if value != self._seen:
            self._seen, self._ends_ns, self._lives = value, after_ns + left_ms * 1_000_000, False
        elif before_ns + left_ms * 1_000_000 > self._ends_ns + RENEWED_MS * 1_000_000:
            self._ends_ns, self._lives = after_ns + left_ms * 1_000_000, True
        if self._lives and left_ms > owner.lease_or(self._lease_ms) * (1 - SILENT_SHARE):
            return self._locked(who, "it lives, it has just renewed its lease", 0)
        return self._locked(who, f"it may be dead: its lease ends in {left_ms} ms unless it is renewed", left_ms + 1)

    def _locked(self, who: str, why: str, left_ms: int) -> RetryStoreLocked:
        return RetryStoreLocked(
            "retry store not opened",
            why=f"{who} owns {self._name}: {why}",
            hint="give each process a name of its own: redis://…?name=NAME",
            owner=who,
            left_ms=left_ms,
        )

    def _refuse_eviction(self, client: "Redis") -> None:
        try:
            found: Any = client.config_get("maxmemory-policy")
        except self._redis.ResponseError:
            return  # a hosted Redis may refuse the command
        policy = found.get("maxmemory-policy", "noeviction")
        if policy != "noeviction":
            raise RetryStoreRefused(
                "retry store not opened",
                why=f"Redis may evict waiting messages: maxmemory-policy is {policy}",
                hint="use a server with noeviction",
            )

    def _summary(self, client: "Redis") -> Summary:
        summary = Summary()
        for seq, value in client.hscan_iter(self._prefix + "x", count=SCAN_COUNT):
            lane, order_key, payload_bytes = _index(value)
            summary.add(int(seq), entry_bytes(payload_bytes, order_key), lane, order_key)
        for seq, value in client.hscan_iter(self._prefix + "g", count=SCAN_COUNT):
            summary.add_given_up(int(seq), len(value))
        return summary

    def close(self) -> None:
        """Give the lease back, if it is still ours, and disconnect."""
        client, self._client = self._client, None
        token, self._token = self._token, b""
        if client is None:
            return
        try:
            if token:
                with client.pipeline() as opened:
                    pipe: Any = opened
                    pipe.watch(self._prefix + "owner")
                    if pipe.get(self._prefix + "owner") == token:
                        pipe.multi()
                        pipe.delete(self._prefix + "owner")
                        pipe.execute()
            client.close()
        except (self._redis.RedisError, OSError):
            return  # the lease ends by itself, or with the next opening

    def keep_alive(self) -> None:
        """Renew the lease."""
        self._transaction([])

    def repair(self) -> str:
        """Refuse: this program cannot decide about damaged keys of a server."""
        raise RetryStoreCorrupt(
            "retry store not repaired", why=f"{self._name} holds keys of another form", hint="use another name"
        )

    # -- writing -----------------------------------------------------------------------------------------------

    def write(self, changes: Changes) -> None:
        """Write in one transaction."""
        commands: list[tuple[Any, ...]] = []
        add = commands.append
        if changes.added:
            payloads: list[Any] = []
            indexes: list[Any] = []
            for entry in changes.added:
                payloads += (entry.seq, entry.payload)
                indexes += (entry.seq, _ENCODE((entry.lane, entry.order_key, len(entry.payload))))
                add(("ZADD", self._order_name(entry), 0, _member(entry, entry.due_ms, entry.attempts)))
            members = [part for entry in changes.added for part in (0, f"{entry.seq:016x}")]
            add(("ZADD", self._prefix + "seqs", *members))
            add(("HSET", self._prefix + "m", *payloads))
            add(("HSET", self._prefix + "x", *indexes))
        gone = [*changes.removed, *(entry for entry, _ in changes.given_up)]
        for entry in gone:
            add(("ZREM", self._order_name(entry), _member(entry, entry.due_ms, entry.attempts)))
        if gone:
            seqs = [entry.seq for entry in gone]
            add(("HDEL", self._prefix + "m", *seqs))
            add(("HDEL", self._prefix + "x", *seqs))
            add(("ZREM", self._prefix + "seqs", *(f"{seq:016x}" for seq in seqs)))
        for entry, due_ms, attempts in changes.moved:
            name = self._order_name(entry)
            add(("ZREM", name, _member(entry, entry.due_ms, entry.attempts)))
            add(("ZADD", name, 0, _member(entry, due_ms, attempts)))
        for entry, why in changes.given_up:
            value = _ENCODE((entry.due_ms, entry.attempts, entry.lane, entry.order_key, why, entry.payload))
            add(("HSET", self._prefix + "g", entry.seq, value))
        self._transaction(commands)

    def _transaction(self, commands: list[tuple[Any, ...]]) -> None:
        client = self._opened()
        owner = self._prefix + "owner"
        with self._guard("retry store not written"):
            try:
                with client.pipeline(transaction=True) as opened:
                    pipe: Any = opened  # its methods are not typed
                    pipe.watch(owner)
                    if pipe.get(owner) != self._token:
                        raise self._lost()
                    pipe.multi()
                    for command in commands:
                        pipe.execute_command(*command)
                    pipe.pexpire(owner, self._lease_ms)
                    pipe.execute()
            except self._redis.WatchError as error:
                raise self._lost() from error

    def _lost(self) -> RetryStoreLocked:
        return RetryStoreLocked(
            "retry store not written",
            why=f"the lease of {self._name} ran out, and another process may own it now",
            hint="give each process a name of its own; raise lease_ms if this one was only slow",
        )

    def _order_name(self, entry: Entry) -> str:
        return f"{self._prefix}lane:{entry.lane}" if entry.lane else self._prefix + "due"

    # -- reading -----------------------------------------------------------------------------------------------

    def due(self, start: tuple[int, int], until_ms: int, count: int, size_bytes: int) -> list[Entry]:
        """Return entries without a lane."""
        low, high = f"[{start[0]:016x}{start[1]:016x}", f"({until_ms + 1:016x}"
        return self._entries(self._prefix + "due", low, high, count, size_bytes, "")

    def first_due_ms(self, start: tuple[int, int]) -> int | None:
        """Return the due time of the first entry without a lane."""
        members = self._members(self._prefix + "due", f"[{start[0]:016x}{start[1]:016x}", "+", 1)
        return int(members[0][:_TIME_DIGITS], 16) if members else None

    def lane(self, lane: str, start_seq: int, count: int, size_bytes: int) -> list[Entry]:
        """Return entries of a lane."""
        return self._entries(f"{self._prefix}lane:{lane}", f"[{start_seq:016x}", "+", count, size_bytes, lane)

    def _members(self, name: str, low: str, high: str, count: int) -> list[bytes]:
        with self._guard("retry store not read"):
            members: Any = self._opened().zrangebylex(name, low, high, start=0, num=count)
            return list(members)

    def _entries(self, name: str, low: str, high: str, count: int, size_bytes: int, lane: str) -> list[Entry]:
        heads: list[tuple[int, int, int]] = []
        try:
            for member in self._members(name, low, high, count):
                place, _, attempts = member.partition(b":")
                due = int(place[:-_TIME_DIGITS], 16) if len(place) > _TIME_DIGITS else 0
                heads.append((due, int(place[-_TIME_DIGITS:], 16), int(attempts)))
        except ValueError as error:
            raise RetryStoreCorrupt("retry store not read", why=f"{name}: {error}") from error
        found: list[Entry] = []
        for at in range(0, len(heads), 100):  # in parts: the sizes of the payloads are not known before
            part = heads[at : at + 100]
            seqs = [str(seq) for _, seq, _ in part]
            with self._guard("retry store not read"):
                payloads: Any = self._opened().hmget(self._prefix + "m", seqs)
                keys: Any = self._opened().hmget(self._prefix + "x", seqs) if lane else [None] * len(seqs)
            for (due_ms, seq, tries), payload, index in zip(part, payloads, keys, strict=True):
                order_key = _index(index)[1] if index else ""
                found.append(Entry(seq, due_ms, tries, lane, order_key, payload or b""))
                size_bytes -= found[-1].size_bytes
                if size_bytes <= 0:
                    return found
        return found

    def oldest_seq(self, start_seq: int) -> int:
        """Return the smallest seq of the waiting entries."""
        members = self._members(self._prefix + "seqs", f"[{start_seq:016x}", "+", 1)
        return int(members[0], 16) if members else 0

    def given_up(self, start_seq: int, count: int) -> list[tuple[Entry, str]]:
        """Return entries that were given up."""
        client = self._opened()
        with self._guard("retry store not read"):
            seqs = sorted(int(seq) for seq in client.hkeys(self._prefix + "g"))
            seqs = [seq for seq in seqs if seq >= start_seq][:count]
            values: Any = client.hmget(self._prefix + "g", [str(seq) for seq in seqs]) if seqs else []
        found: list[tuple[Entry, str]] = []
        for seq, value in zip(seqs, values, strict=True):
            try:
                due_ms, attempts, lane, order_key, why, payload = msgspec.msgpack.decode(
                    value, type=tuple[int, int, str, str, str, bytes]
                )
            except DECODE_ERRORS as error:
                raise RetryStoreCorrupt("retry store not read", why=f"given-up entry {seq}: {error}") from error
            found.append((Entry(seq, due_ms, attempts, lane, order_key, payload), why))
        return found

    def purge_given_up(self, entries: Sequence[Entry]) -> None:
        """Remove entries that were given up."""
        if entries:
            self._transaction([("HDEL", self._prefix + "g", *(entry.seq for entry in entries))])

    def _opened(self) -> "Redis":
        if self._client is None:
            raise RetryStoreUnreachable("retry store not used", why=f"{self._name} is not open")
        return self._client

    def _translated(self, what: str, error: Exception) -> RetryStoreError:
        errors = self._redis.exceptions
        text = f"{self._name}: {error}"
        if isinstance(error, errors.OutOfMemoryError) or str(error).startswith(("OOM", "MISCONF")):
            return RetryStoreFull(what, why=text, hint="give Redis more memory, or check its disk")
        if isinstance(error, errors.ResponseError) and "WRONGTYPE" in str(error):
            return RetryStoreCorrupt(what, why=text, hint="use another name")
        return RetryStoreUnreachable(what, why=text, hint="check the Redis server")


_ENCODE = msgspec.msgpack.Encoder().encode


def _member(entry: Entry, due_ms: int, attempts: int) -> str:
    if entry.lane:
        return f"{entry.seq:016x}:{attempts}"
    return f"{due_ms:016x}{entry.seq:016x}:{attempts}"


def _index(value: bytes) -> tuple[str, str, int]:
    try:
        return msgspec.msgpack.decode(value, type=tuple[str, str, int])
    except DECODE_ERRORS as error:
        raise RetryStoreCorrupt("retry store not read", why=str(error)) from error
