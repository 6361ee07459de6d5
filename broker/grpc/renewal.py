"""Messages that clients work on: their newest handles, and the renewal of their time.

A push consumer asks with ``auto_renew`` and names no time. The server then takes a minute and extends it for as long as
the client is here: each ``STEP_S`` what ends within ``AHEAD_MS``, by ``STEPS_MS`` one after the other, three hours at
most. So every renewal makes a handle that the client does not know: the newest one is kept here by (client, group,
message id), and what the client says about an older one counts for it.

Source: RocketMQ 5.3.3 ``ReceiptHandleProcessor``, ``RenewStrategyPolicy``.

Lives here: ``Renewal``, ``Held``.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from pocketmq.auth.session import Session
from pocketmq.broker.grpc.callers import Caller
from pocketmq.broker.grpc.clients import GrpcClient, GrpcClients
from pocketmq.common.bounds import bounded
from pocketmq.common.clock import Clock
from pocketmq.common.receipt_handle import ReceiptHandle

HELD_MAX: Final = 100_000
"""Messages with automatic renewal; RocketMQ's proxy keeps 300 for each group and client, here it is one number."""
ENTRY_BYTES: Final = 1_200
STEP_S: Final = 5.0
AHEAD_MS: Final = 10_000
STEPS_MS: Final = (60_000, 180_000, 300_000, 600_000, 1_800_000, 3_600_000)
RENEW_MS_MAX: Final = 3 * 3_600_000
AT_ONCE: Final = 500
"""Renewals that are asked for together."""
GONE_MS: Final = 1_000
"""When a message of a client that has gone is handed out again."""

Key = tuple[str, str, str, str]
"""User, client id, group, message id."""


@dataclass(slots=True)
class Held:
    """One message with a client."""

    client: GrpcClient
    group: str
    topic: str
    handle: ReceiptHandle
    first: str
    """The handle as the client has it."""
    since_ns: int
    """When it was handed out, monotonic."""
    session: Session | None
    """Of the user that has received it."""
    renewals: int = 0


Change = Callable[[Held, int], Awaitable[ReceiptHandle | None]]
"""Gives a message so many ms from now on; returns the new handle, None: its time is over."""


@bounded("messages that gRPC clients hold", limit=HELD_MAX, size="held", entry_bytes=ENTRY_BYTES, when_full="evicts")
class Renewal:
    """Loop thread only."""

    def __init__(self, clients: GrpcClients, change: Change, clock: Clock) -> None:
        self._clients = clients
        self._change = change
        self._clock = clock
        self.held: OrderedDict[Key, Held] = OrderedDict()
        self.renewed = 0
        """Renewals since the start."""

    def add(self, caller: Caller, group: str, topic: str, message_id: str, handle: ReceiptHandle) -> None:
        """Note a message that was handed out with automatic renewal."""
        client = caller.client
        key = client.user, client.client_id, group, message_id
        self.held[key] = Held(client, group, topic, handle, str(handle), self._clock.monotonic_ns(), caller.session)
        self.held.move_to_end(key)
        if len(self.held) > HELD_MAX:
            self.held.popitem(last=False)

    def newest(self, client: GrpcClient, group: str, message_id: str, given: str) -> ReceiptHandle:
        """Return the handle that counts where a client names ``given``. Raise ``HandleIllegal``."""
        held = self.held.get((client.user, client.client_id, group, message_id))
        if held is not None and held.first == given:
            return held.handle
        return ReceiptHandle.parse(given)

    def done(self, client: GrpcClient, group: str, message_id: str, given: str) -> None:
        """Forget a message that is settled."""
        key = client.user, client.client_id, group, message_id
        held = self.held.get(key)
        if held is not None and held.first == given:
            del self.held[key]

    async def gone(self, client: GrpcClient) -> None:
        """Let others have the messages of a client that has gone."""
        for key, held in [(key, held) for key, held in self.held.items() if held.client is client]:
            if self.held.get(key) is held:
                del self.held[key]
                await self._change(held, GONE_MS)

    async def step(self) -> None:
        """Renew what ends soon. Called every ``STEP_S``."""
        now_ms = self._clock.now_ms()
        due = [(key, held) for key, held in self.held.items() if held.handle.expires_ms <= now_ms + AHEAD_MS]
        for at in range(0, len(due), AT_ONCE):
            await asyncio.gather(*(self._renew(key, held) for key, held in due[at : at + AT_ONCE]))

    async def _renew(self, key: Key, held: Held) -> None:
        is_here = self._clients.is_here(held.client)
        if not is_here or self._clock.monotonic_ns() - held.since_ns > RENEW_MS_MAX * 1_000_000:
            self.held.pop(key, None)
            if not is_here:
                await self._change(held, GONE_MS)
            return
        changed = await self._change(held, STEPS_MS[min(held.renewals, len(STEPS_MS) - 1)])
        if self.held.get(key) is not held:  # settled, or handed out again, meanwhile
            return
        if changed is None:
            del self.held[key]
            return
        held.handle = changed
        held.renewals += 1
        self.renewed += 1
