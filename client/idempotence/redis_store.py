"""Marks in a Redis server: shared by all instances, forgotten through their expiry.

Lives here: ``RedisStore`` and its scripts, each atomic for one key. Needs ``pip install 'pocketmq[redis]'``.

A mark is a string: ``R|<owner>|<lease ends, ms>`` or ``D``. Times are those of the server, so that the clocks of the
instances do not matter.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from pocketmq.client.idempotence.store import Claim, MarkStoreUnavailable
from pocketmq.client.libraries import library, translated
from pocketmq.common.errors import ConfigError

PREFIX: Final = "pocketmq:mark:"

_NOW: Final = "local t = redis.call('TIME') local now = t[1] * 1000 + math.floor(t[2] / 1000) "
_CLAIM: Final = (
    _NOW
    + """
local mark = redis.call('GET', KEYS[1])
local result = 0
if mark == 'D' then return 3 end
if mark then
  if tonumber(string.match(mark, '|(%d+)$')) > now then return 2 end
  result = 1
end
local text = 'R|' .. ARGV[1] .. '|' .. string.format('%.0f', now + ARGV[2])
redis.call('SET', KEYS[1], text, 'PX', ARGV[3])
return result
"""
)
_HELD: Final = """
local mark = redis.call('GET', KEYS[1])
local own = 'R|' .. ARGV[1] .. '|'
if not mark or string.sub(mark, 1, #own) ~= own then return 0 end
"""
_RENEW: Final = (
    _NOW
    + _HELD
    + """
local kept = math.max(redis.call('PTTL', KEYS[1]), 2 * ARGV[2])
redis.call('SET', KEYS[1], own .. string.format('%.0f', now + ARGV[2]), 'PX', string.format('%.0f', kept))
return 1
"""
)
_FINISH: Final = _HELD + "redis.call('SET', KEYS[1], 'D', 'PX', ARGV[2]) return 1"
_RELEASE: Final = _HELD + "redis.call('DEL', KEYS[1]) return 1"


class RedisStore:
    """``url``: ``redis://host:port/0``. Belongs to one event loop.

    Bounded by the window (every mark has an expiry) and by the server's ``maxmemory``: with an eviction policy other
    than ``noeviction`` a full server may forget marks early.
    """

    def __init__(self, url: str, *, prefix: str = PREFIX, timeout_s: float = 5.0) -> None:
        redis = library("redis.asyncio", "redis", "marks in Redis need a library")
        self._prefix = prefix
        self._guard = partial(translated, (redis.RedisError, OSError), _unavailable)
        try:
            self._client: Any = redis.Redis.from_url(
                url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s, decode_responses=True
            )
        except ValueError as error:
            raise ConfigError("bad store of marks", why=str(error), hint="redis://host:port/0") from error
        register: Callable[[str], Any] = self._client.register_script
        self._claim, self._renew = register(_CLAIM), register(_RENEW)
        self._finish, self._release = register(_FINISH), register(_RELEASE)

    async def open(self) -> None:
        """Connect."""
        with self._guard("not connected"):
            await self._client.ping()

    async def _run(self, what: str, script: Any, keys: Sequence[str], *arguments: object) -> list[int]:
        """Run a script for each key, all in one pipeline."""
        with self._guard(what):
            async with self._client.pipeline(transaction=False) as pipeline:
                for key in keys:
                    await script(keys=[self._prefix + key], args=arguments, client=pipeline)
                return [int(result) for result in await pipeline.execute()]

    async def claim(
        self, keys: Sequence[str], owner: str, now_ms: int, lease_ms: int, window_ms: int
    ) -> Sequence[Claim]:
        """Claim keys."""
        results = await self._run("not claimed", self._claim, keys, owner, lease_ms, max(window_ms, 2 * lease_ms))
        return [Claim(result) for result in results]

    async def renew(self, keys: Sequence[str], owner: str, now_ms: int, lease_ms: int) -> None:
        """Renew held claims."""
        await self._run("not renewed", self._renew, keys, owner, lease_ms)

    async def finish(self, keys: Sequence[str], owner: str, now_ms: int, window_ms: int) -> Sequence[bool]:
        """Mark held claims as done."""
        return [bool(result) for result in await self._run("not finished", self._finish, keys, owner, window_ms)]

    async def release(self, keys: Sequence[str], owner: str) -> None:
        """Forget held claims."""
        await self._run("not released", self._release, keys, owner)

    async def purge(self, now_ms: int) -> int:
        """Leave it to the server."""
        return 0

    async def close(self) -> None:
        """Disconnect."""
        await self._client.aclose()


def _unavailable(what: str, error: Exception) -> MarkStoreUnavailable:
    return MarkStoreUnavailable(f"marks: {what}", why=f"{type(error).__name__}: {error}", hint="check the server")
