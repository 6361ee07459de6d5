"""One channel for each server address, connected on demand.

Lives here: ``ChannelPool``: sharing of one connect among callers, backoff after failures.
"""

import asyncio
import random
from collections.abc import Callable

from pocketmq.common.clock import Clock
from pocketmq.common.events import EventLog
from pocketmq.remoting.channel import ChannelConfig, ClientChannel
from pocketmq.remoting.codec import Request
from pocketmq.remoting.errors import AuthenticationFailed, ConnectFailed
from pocketmq.remoting.frame import new_scratch
from pocketmq.remoting.frame_budget import FRAME_BUDGET_BYTES, FrameBudget
from pocketmq.remoting.security.client_security import NO_SECURITY, ClientSecurity

BACKOFF_MS_MIN = 20
BACKOFF_MS_MAX = 250
"""A send that waits for a broker's restart must notice its end; a refused connect costs little."""
REFUSED_MS = 1_000
"""A server that refused the credentials is asked again after this time: each attempt costs it a proof."""
ADDRESSES_MAX = 4_096


class _Backoff:
    """The failed connects to one address."""

    __slots__ = ("delay_ms", "reason", "refused", "until_ns", "why")

    def __init__(self) -> None:
        self.delay_ms = 0
        self.until_ns = 0
        self.why = self.reason = ""
        self.refused: AuthenticationFailed | None = None


class ChannelPool:
    """Channels by address ("host:port"). Use from one loop's thread.

    A channel from the pool is open and has had its answer to hello, so its ``announcement`` is final. A lost channel is
    replaced by the next ``get``. After a failed connect further ``get`` calls fail at once, with ``retry_after_ms``,
    until a jittered delay has passed (20 ms, doubling up to 250 ms; 20 ms after a connect that timed out): a caller
    with other addresses tries those first. After refused credentials the delay is a second.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        log: EventLog,
        config: ChannelConfig | None = None,
        security: ClientSecurity = NO_SECURITY,
        on_request: Callable[[ClientChannel, Request], None] | None = None,
        on_close: Callable[[ClientChannel, str], None] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._clock = clock
        self._log = log
        self._config = config or ChannelConfig()
        self._security = security
        self._on_request = on_request
        self._on_close = on_close
        self._rng = rng or random.Random()
        self._scratch = new_scratch()
        self._budget = FrameBudget(FRAME_BUDGET_BYTES)
        self._channels: dict[str, ClientChannel] = {}
        self._connecting: dict[str, asyncio.Task[ClientChannel]] = {}
        self._backoffs: dict[str, _Backoff] = {}
        self._closed = False

    def peek(self, address: str) -> ClientChannel | None:
        """Return the open channel to ``address``, if there is one; never connect."""
        channel = self._channels.get(address)
        return channel if channel is not None and not channel.closed else None

    @property
    def channels(self) -> list[ClientChannel]:
        """The open channels."""
        return [channel for channel in self._channels.values() if not channel.closed]

    async def get(self, address: str) -> ClientChannel:
        """Return an open channel to ``address``; concurrent callers share one connect.

        Raise ``ConnectFailed`` or ``AuthenticationFailed``.
        """
        channel = self._channels.get(address)
        if channel is not None and not channel.closed:
            return channel
        task = self._connecting.get(address)
        if task is None:
            self._check(address)
            task = asyncio.get_running_loop().create_task(self._connect(address))
            self._connecting[address] = task
            task.add_done_callback(lambda done: self._connected(address, done))
        return await asyncio.shield(task)

    def _check(self, address: str) -> None:
        if self._closed:
            raise ConnectFailed(f"cannot connect to {address}", why="the pool is closed")
        backoff = self._backoffs.get(address)
        if backoff is None:
            if len(self._channels) + len(self._backoffs) >= ADDRESSES_MAX:
                self._forget()
            return
        rest_ms = (backoff.until_ns - self._clock.monotonic_ns() + 999_999) // 1_000_000
        if rest_ms > 0 and backoff.refused is not None:
            refused = backoff.refused
            raise AuthenticationFailed(refused.what, why=refused.why, hint=refused.hint, retry_after_ms=rest_ms)
        if rest_ms > 0:
            failed = ConnectFailed(
                f"cannot connect to {address}",
                why=f"the last attempt failed ({backoff.why}); the next one is due in {rest_ms} ms",
                retry_after_ms=rest_ms,
            )
            failed.reason = backoff.reason
            raise failed

    def _forget(self) -> None:
        now_ns = self._clock.monotonic_ns()
        self._channels = {address: channel for address, channel in self._channels.items() if not channel.closed}
        self._backoffs = {address: b for address, b in self._backoffs.items() if b.until_ns > now_ns}
        if len(self._channels) + len(self._backoffs) >= ADDRESSES_MAX:
            raise ConnectFailed("cannot connect", why=f"the pool holds {ADDRESSES_MAX} addresses already")

    async def _connect(self, address: str) -> ClientChannel:
        channel = ClientChannel(
            address,
            clock=self._clock,
            log=self._log,
            config=self._config,
            security=self._security,
            on_request=self._on_request,
            on_close=self._on_close,
            scratch=self._scratch,
            budget=self._budget,
        )
        try:
            await channel.open()
            await channel.hello()
        except asyncio.CancelledError:
            channel.close("the pool is closed")
            raise
        return channel

    def _connected(self, address: str, task: asyncio.Task[ClientChannel]) -> None:
        self._connecting.pop(address, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            channel = task.result()
            self._backoffs.pop(address, None)
            if self._closed:
                channel.close("the pool is closed")
                return
            self._channels[address] = channel
            return
        self._channels.pop(address, None)
        backoff = self._backoffs.setdefault(address, _Backoff())
        backoff.refused = error if isinstance(error, AuthenticationFailed) else None
        if backoff.refused is not None:
            backoff.delay_ms = REFUSED_MS
        elif isinstance(error.__cause__, TimeoutError):  # it has waited for its timeout: the next one may follow soon
            backoff.delay_ms = BACKOFF_MS_MIN
        else:
            backoff.delay_ms = min(max(backoff.delay_ms * 2, BACKOFF_MS_MIN), BACKOFF_MS_MAX)
        wait_ms = backoff.delay_ms * self._rng.uniform(0.5, 1.0)
        backoff.until_ns = self._clock.monotonic_ns() + int(wait_ms * 1_000_000)
        backoff.why = error.why if isinstance(error, ConnectFailed) else str(error)
        backoff.reason = error.reason if isinstance(error, ConnectFailed) else str(error)

    async def close(self) -> None:
        """Close every channel and cancel every connect."""
        self._closed = True
        for task in list(self._connecting.values()):
            task.cancel()
        if self._connecting:
            await asyncio.gather(*self._connecting.values(), return_exceptions=True)
        channels = list(self._channels.values())
        self._channels.clear()
        for channel in channels:
            channel.close("the pool is closed")
        for channel in channels:
            await channel.wait_closed()
