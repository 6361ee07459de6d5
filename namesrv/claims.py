"""Claims of epochs, and what they do to the brokers that are registered.

Lives here: ``Claims``: HA_EPOCH (read, claim, forget), and the check of a registration against the epochs.

A claim that holds takes the present master out of the routes. So a name whose master is registered and lives is claimed
over that master's own connection, or by the broker to which it has promised the epoch: no stranger's claim does harm
while the master lives, whatever its number, its owner and its address.
"""

from functools import partial
from typing import Any, Final, Protocol

from msgspec import structs

from pocketmq.common.errors import PocketMQError
from pocketmq.common.events import EventLog
from pocketmq.namesrv.epoch_store import EpochStore
from pocketmq.namesrv.epochs import TEXT_CHARS_MAX, EpochRecord
from pocketmq.namesrv.holders import Holders, Life
from pocketmq.namesrv.refused import RequestRefused
from pocketmq.namesrv.route_table import MASTER_ID, RouteTable
from pocketmq.remoting.codec import Request
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.protocol.ha import HaEpochResponseHeader
from pocketmq.remoting.protocol.spec import Header
from pocketmq.remoting.server import Connection

FENCED_MAX: Final = 16
"""Refused masters that are remembered of one broker name."""


class Replies(Protocol):
    """The server's answers."""

    def answer(self, connection: Connection, request: Request, header: Header) -> None:
        """Answer SUCCESS."""
        ...

    def refuse(self, connection: Connection, request: Request, error: PocketMQError) -> None:
        """Answer with the code and the text of an error."""
        ...


class Claims:
    """Loop thread. ``names_max`` bounds what is remembered of refused masters, as it bounds the epochs."""

    def __init__(
        self,
        routes: RouteTable,
        epochs: EpochStore,
        holders: Holders,
        replies: Replies,
        names_max: int,
        log: EventLog,
    ) -> None:
        self._routes = routes
        self._epochs = epochs
        self._holders = holders
        self._replies = replies
        self._names_max = names_max
        self._log = log
        self._fenced: dict[str, set[str]] = {}  # broker name -> masters that were refused

    def serve(self, connection: Connection, request: Request) -> None:
        """Answer HA_EPOCH: at once when it reads, once the change is durable when it claims or forgets."""
        header: Any = request.header
        name = header.broker_name
        if header.forget:
            self._forget(connection, request)
        elif not header.epoch:
            self._replies.answer(connection, request, self._epoch_header(name, granted=False))
        else:
            claim = EpochRecord(header.epoch, header.owner, header.address, header.role, self._routes.has_name(name))
            holds = self._epochs.table.judge(name, claim, force=header.force, last_epoch=header.last_epoch)
            master = self._routes.master_channel(name)
            if holds and isinstance(master, Connection) and master is not connection:
                done = partial(self._claim_contested, connection, request, claim, master)
                self._holders.ask(master, len(request.body), done)
            else:
                self._claim(connection, request, claim)

    def _claim_contested(
        self, connection: Connection, request: Request, claim: EpochRecord, master: Connection, life: Life
    ) -> None:
        """Judge a claim that would take the place of a registered master, now that this one has answered, or not.

        It gives way if it has promised the epoch, as ``pocketmq ha promote`` has it do; where the command did not reach
        it, to a slave of its own that is registered and has promised itself the epoch. A broker of an older version, or
        RocketMQ's, does not say such things: then the rules for numbers alone decide.
        """
        header: Any = request.header
        name = header.broker_name
        lives = self.lives(name, MASTER_ID, "claimed")
        candidate = self._routes.channel_of(claim.address)

        def judge(life: Life) -> None:
            try:
                if not life.has_promised(claim.epoch, claim.owner):
                    raise lives
                self._judge(connection, request, claim)
            except PocketMQError as error:
                self._replies.refuse(connection, request, error)

        try:
            if not life.lives:
                gone = ""
                if self._routes.master_channel(name) is master:
                    gone = self._routes.address_of(name, MASTER_ID)
                    self.drop(master, "it did not answer, and another broker claims its name")
                self._judge(connection, request, claim, gone)
            elif life.status is None or life.gives_way(claim.epoch, claim.owner):
                self._judge(connection, request, claim)
            elif claim.node in life.status.followers and isinstance(candidate, Connection):
                self._holders.ask(candidate, len(request.body), judge)
            else:
                raise lives
        except PocketMQError as error:
            self._replies.refuse(connection, request, error)

    def _judge(self, connection: Connection, request: Request, claim: EpochRecord, gone: str = "") -> None:
        header: Any = request.header
        name = header.broker_name
        plain = self._routes.plain_master(name, header.address, connection)
        if plain:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"claim refused: {name[:TEXT_CHARS_MAX]} is registered by {plain}, which runs without replicas and"
                " has no epoch (stop that broker first, or give it a slave)",
            )
        self._claim(connection, request, claim, gone)

    def _claim(self, connection: Connection, request: Request, claim: EpochRecord, gone: str = "") -> None:
        """Claim; ``gone`` is the address of a master that was dropped, which the new one replaces."""
        header: Any = request.header
        name = header.broker_name

        def done(granted: bool, error: PocketMQError | None) -> None:
            if error is not None:
                self._log.warning("epoch_claim_failed", broker=name, remote=connection.remote, error=str(error))
                self._replies.refuse(connection, request, error)
                return
            if granted:
                if gone:  # it may come back, and is then to be found
                    self._note_fenced(name, gone)
                self._lead(name, claim.address)
            else:
                self._note_fenced(name, claim.address)
            self._replies.answer(connection, request, self._epoch_header(name, granted=granted))

        self._epochs.claim(name, claim, done, force=header.force, last_epoch=header.last_epoch)

    def _forget(self, connection: Connection, request: Request) -> None:
        """Remove the record of a name; refuse while a broker of that name is registered."""
        header: Any = request.header
        name = header.broker_name
        if self._routes.has_name(name):
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"{name[:TEXT_CHARS_MAX]} is registered: its epoch is in use (stop its brokers first; to make another"
                f" broker its master: pocketmq ha promote {name[:TEXT_CHARS_MAX]})",
            )
        known = self._epochs.table.get(name) is not None

        def done(granted: bool, error: PocketMQError | None) -> None:
            if error is not None:
                self._replies.refuse(connection, request, error)
                return
            self._fenced.pop(name, None)
            self._replies.answer(connection, request, self._epoch_header(name, granted=known))

        self._epochs.forget(name, done, registered=True)

    def drop(self, holder: Connection, why: str) -> None:
        """Forget a connection's brokers at once, and close it."""
        for address in self._routes.channel_closed(holder):
            self._log.warning("broker_gone", address=address, why=why)
        holder.close(why)

    def lives(self, broker_name: str, broker_id: int, what: str) -> RequestRefused:
        """Return the refusal of a broker that wants the place of one that lives."""
        address = self._routes.address_of(broker_name, broker_id)
        return RequestRefused(
            ResponseCode.NO_PERMISSION,
            f"not {what}: {broker_name} id {broker_id} is {address or 'another broker'}, which lives (stop that one"
            f" first; to make another one the master: pocketmq ha promote {broker_name})",
        )

    def _epoch_header(self, broker_name: str, *, granted: bool) -> HaEpochResponseHeader:
        known = self._epochs.table.get(broker_name)
        is_kept = self._epochs.is_kept
        if known is None:
            return HaEpochResponseHeader(granted, is_kept=is_kept)
        fenced = ",".join(sorted(self._fenced.get(broker_name, ())))
        return HaEpochResponseHeader(granted, known.epoch, known.owner, known.address, known.role, fenced, is_kept)

    def _lead(self, broker_name: str, address: str) -> None:
        """Take the master that was replaced out of the routes; closing its connection lets it learn at once."""
        self._fenced.get(broker_name, set()).discard(address)
        replaced = self._routes.remove_other_master(broker_name, address)
        if replaced is not None:
            old_address, channel = replaced
            self._note_fenced(broker_name, old_address)
            self._log.warning("master_replaced", broker=broker_name, old=old_address, new=address)
            if isinstance(channel, Connection):
                channel.close("another master has a newer epoch")

    def _note_fenced(self, broker_name: str, address: str) -> None:
        if self._epochs.table.get(broker_name) is not None:
            if len(self._fenced) > self._names_max:  # names whose claims have made room for others
                self._fenced = {name: fenced for name, fenced in self._fenced.items() if self._epochs.table.get(name)}
            addresses = self._fenced.setdefault(broker_name, set())
            if len(addresses) < FENCED_MAX:
                addresses.add(address)

    def check(self, header: Any) -> None:
        """Check the epoch of a registration: refuse a master that was replaced. Raises ``RequestRefused``."""
        self._fenced.get(header.broker_name, set()).discard(header.broker_addr)
        known = self._epochs.table.get(header.broker_name)
        if known is None or header.broker_id != MASTER_ID:
            return
        if (header.epoch, header.epoch_owner) == (known.epoch, known.owner):
            if not known.registered:  # from now on it stays, whatever other names are claimed
                self._epochs.claim(header.broker_name, structs.replace(known, registered=True), self._noted)
            return
        if not header.epoch and not known.registered:  # another broker's claim while this plain broker was away
            self._epochs.forget(header.broker_name, self._noted)
            return
        self._note_fenced(header.broker_name, header.broker_addr)
        raise RequestRefused(
            ResponseCode.NO_PERMISSION,
            f"epoch {known.epoch} of {header.broker_name} belongs to {known.address}; this master has epoch"
            f" {header.epoch} ({_way_out(header)})",
        )

    def _noted(self, granted: bool, error: PocketMQError | None) -> None:
        """A registration does not wait for this; the next one tries again what failed."""
        if error is not None:
            self._log.warning("epoch_not_noted", error=str(error))


def _way_out(header: Any) -> str:
    """Return what an operator can do about a master that is refused for its epoch."""
    name = header.broker_name
    slave = f"make it a slave: pocketmq ha demote {name}"
    if header.epoch:
        return slave
    return (
        f"it has no epoch: start it with the store of {name}, or {slave}; only if that store is gone for good:"
        f" pocketmq ha forget {name}"
    )
