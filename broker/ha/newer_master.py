"""Whether another node has taken this master's place while it was away, asked before it looks for lost records.

Lives here: ``fence_if_replaced``.

A master that lost power asks its slaves for what it lost, and does not start without them. A slave that was promoted
meanwhile is nobody's slave: it never answers, and this node has nothing to fetch either, because the log of the new
master is the one that counts. So it starts fenced, like every other master that was replaced, and waits for an
operator's ``pocketmq ha demote``. It cannot lead again before its log has the new master's epoch.
"""

from collections.abc import Awaitable, Callable
from functools import partial

from pocketmq.broker.config import BrokerConfig
from pocketmq.common.clock import Clock
from pocketmq.common.errors import PocketMQError
from pocketmq.common.events import EventLog
from pocketmq.remoting.channel_pool import ChannelPool
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.ha import HaEpochRequestHeader, HaEpochResponseHeader
from pocketmq.remoting.security.client_security import NO_SECURITY, ClientSecurity
from pocketmq.store.ha.state import HaState

ASK_MS = 3000

OffLoop = Callable[[str, Callable[[], bool]], Awaitable[bool]]
"""Carries a call out in a worker of this name."""


async def fence_if_replaced(
    config: BrokerConfig,
    state: HaState,
    off_loop: OffLoop,
    clock: Clock,
    log: EventLog,
    security: ClientSecurity = NO_SECURITY,
) -> bool:
    """Ask the name servers one after the other for the newest epoch of this name; fence this node if it is another
    node's. Return whether it was fenced. Raises ``StoreError`` when the disk does."""
    pool = ChannelPool(clock=clock, log=log, security=security)
    try:
        for address in config.name_servers():
            found = await _newest(pool, address, config.broker_name)
            if found is None or found.epoch <= state.highest_known or state.is_own(found.owner):
                continue
            if await off_loop("HaFence", partial(state.fence, found.epoch, found.owner, found.address)):
                log.warning(
                    "replaced_while_away",
                    epoch=found.epoch,
                    owner=found.owner,
                    master=found.address,
                    name_server=address,
                    what_to_do=f"let it follow: pocketmq ha demote {config.broker_name}",
                )
                return True
    finally:
        await pool.close()
    return False


async def _newest(pool: ChannelPool, address: str, broker_name: str) -> HaEpochResponseHeader | None:
    try:
        channel = await pool.get(address)
        answer = await channel.request(RequestCode.HA_EPOCH, HaEpochRequestHeader(broker_name), timeout_ms=ASK_MS)
    except PocketMQError:
        return None
    known = answer.header
    return known if answer.code == ResponseCode.SUCCESS and isinstance(known, HaEpochResponseHeader) else None
