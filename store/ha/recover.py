"""A restarted master fetches lost bytes from its slaves.

After a power loss under asynchronous flush a slave's log may be longer than its master's. A master that continued from
its own end would give those offsets to other messages, and confirmed messages would be lost. So it first listens on its
HA port, asks its former slaves, appends the bytes that the most advanced of them has beyond its own end, and only then
opens its epoch.

Lives here: ``recover_from_slaves``, ``HaRecoveryNeeded``.

How many slaves must answer under SYNC_MASTER: so many that one of them has every confirmed message, because those
missing are too few to confirm one (``in_sync_replicas - 1``). One under ASYNC_MASTER, which promises nothing.
"""

from collections.abc import Callable
from typing import Final

from pocketmq.common.epochs import highest_allowed
from pocketmq.common.hashes import crc32
from pocketmq.store.errors import StoreError
from pocketmq.store.ha import wire
from pocketmq.store.ha.crowd import PEERS_MAX, makes_room
from pocketmq.store.ha.environment import HaEnvironment
from pocketmq.store.ha.epochs import BadEpochs, EpochTable, common_end
from pocketmq.store.ha.handshake import MasterView, check_group
from pocketmq.store.ha.proved_transport import proved
from pocketmq.store.ha.raw_append import RawAppender
from pocketmq.store.ha.tls_transport import with_tls
from pocketmq.store.ha.transport import Listener, Transport, TransportError, listen
from pocketmq.store.ha.wire import Fetched, HaProtocolError, Hello, Welcome

ACCEPT_MS: Final = 20.0
GRACE_MS: Final = 1000
"""Extra time for the other slaves after enough have answered."""
HANDSHAKE_MS: Final = 5000
FETCH_SILENCE_MS: Final = 5000
_NS_PER_MS: Final = 1_000_000


class HaRecoveryNeeded(StoreError):
    """A master must not lead before its slaves have returned what it lost, and too few of them answered."""


class _Peer:
    """One connection during a recovery."""

    def __init__(self, transport: Transport, number: int, now_ns: int) -> None:
        self.transport = transport
        self.number = number
        self.since_ns = now_ns
        self.first = bytearray()
        self.decoder = wire.FrameDecoder(frozenset({wire.HELLO}))
        self.hello: Hello | None = None
        self.epochs = EpochTable()

    @property
    def peer(self) -> str:
        """See ``crowd.Peer``."""
        return self.transport.peer

    @property
    def has_said_hello(self) -> bool:
        """See ``crowd.Peer``."""
        return self.hello is not None

    def receive_hello(self) -> bool:
        """Take received bytes; return whether HELLO is complete. Raises ``HaProtocolError``, ``TransportError``."""
        missing = len(wire.PREAMBLE) - len(self.first)
        if missing:
            part = memoryview(bytearray(missing))
            count = self.transport.receive_into(part, 0)
            if count is None:
                return False
            if count == 0:
                raise TransportError("HA connection closed", why="the peer has closed it")
            self.first += part[:count]
            if not wire.PREAMBLE.startswith(bytes(self.first)):
                raise HaProtocolError("HA connection closed", why=f"{bytes(self.first)!r} begins no known protocol")
            if len(self.first) < len(wire.PREAMBLE):
                return False
        count = self.transport.receive_into(self.decoder.buffer(), 0)
        if count == 0:
            raise TransportError("HA connection closed", why="the peer has closed it")
        if count is not None:
            self.decoder.received(count)
        message = self.decoder.next()
        if not isinstance(message, Hello):
            return False
        self.epochs = EpochTable.from_rows(message.epochs).cut(message.end_offset)
        self.hello = message
        self.decoder.kinds = frozenset({wire.FETCHED, wire.ACK})
        return True


class _Recovery:
    def __init__(self, environment: HaEnvironment, listener: Listener) -> None:
        self.environment = environment
        self.store = environment.store
        self.state = environment.state
        self.clock = environment.clock
        self.log = environment.log
        self.listener = listener
        config = self.store.config
        self.known = self.state.slaves
        synchronous = config.broker_role == "SYNC_MASTER"
        self.needed = max(1, len(self.known) - config.in_sync_replicas + 2) if synchronous else 1
        self.end_offset = self.store.log.appended_offset
        self.epochs = self.state.epochs.cut(self.end_offset)
        self.peers: list[_Peer] = []
        self.accepted = 0
        self.answers: dict[str, _Peer] = {}
        self.higher = (0, "")

    def close(self) -> None:
        for peer in self.peers:
            peer.transport.close()

    def listen(self) -> None:
        """Take HELLOs until enough slaves have answered, or the time is over, or another node leads."""
        deadline_ns = self.clock.monotonic_ns() + self.store.config.ha_recover_wait_ms * _NS_PER_MS
        while self.higher == (0, ""):
            now_ns = self.clock.monotonic_ns()
            if len(self.answers) >= self.needed:
                deadline_ns = min(deadline_ns, now_ns + GRACE_MS * _NS_PER_MS)
            if now_ns >= deadline_ns or self.answers.keys() >= self.known.keys():
                return
            transport = self.listener.accept(ACCEPT_MS)
            if transport is not None:
                self._accept(transport, now_ns)
            for peer in [peer for peer in self.peers if peer.hello is None]:
                self._hear(peer, now_ns)

    def _accept(self, transport: Transport, now_ns: int) -> None:
        out = makes_room(self.peers, transport.peer)
        if out is None and len(self.peers) >= PEERS_MAX:  # all have said hello: those that the master does not know go
            strangers = (peer for peer in self.peers if peer.hello and peer.hello.node_id not in self.known)
            out = next(strangers, None)
        if out is not None:
            self._drop(out)
        elif len(self.peers) >= PEERS_MAX:
            transport.close()
            return
        self.accepted += 1
        self.peers.append(_Peer(transport, self.accepted, now_ns))

    def _hear(self, peer: _Peer, now_ns: int) -> None:
        try:
            if peer.receive_hello():
                self._take_hello(peer)
            elif now_ns - peer.since_ns >= HANDSHAKE_MS * _NS_PER_MS:
                raise HaProtocolError("HA connection closed", why=f"no handshake within {HANDSHAKE_MS} ms")
        except (HaProtocolError, TransportError, BadEpochs) as error:
            self.log.warning(
                "ha_connection_refused", peer=peer.transport.peer, node_id="", why=error.why, connections=1
            )
            self._drop(peer)

    def _drop(self, peer: _Peer) -> None:
        peer.transport.close()
        self.peers.remove(peer)
        self.answers = {node_id: other for node_id, other in self.answers.items() if other is not peer}

    def _take_hello(self, peer: _Peer) -> None:
        hello = peer.hello
        assert hello is not None
        log, config, last = self.store.log, self.store.config, self.epochs.last
        view = MasterView(
            cluster=self.environment.cluster,
            broker_name=self.environment.broker_name,
            node_id=self.state.node_id,
            role=config.broker_role,
            segment_bytes=log.segment_bytes,
            epochs=self.epochs,
            min_offset=log.min_offset,
            end_offset=self.end_offset,
            confirm_offset=min(self.state.confirmed_offset, self.end_offset),
            in_sync_replicas=config.in_sync_replicas,
            total_replicas=config.total_replicas,
            slaves_max=PEERS_MAX,
        )
        refused = check_group(hello, view)
        if refused is not None:
            self.log.warning(
                "ha_connection_refused",
                peer=peer.transport.peer,
                node_id=hello.node_id,
                why=refused.text,
                connections=1,
            )
            _send(peer.transport, wire.encode_refused(refused))
            self._drop(peer)
            return
        number, owner = hello.promised
        is_known = hello.node_id in self.known  # the word and the bytes of other nodes count for nothing
        if is_known and owner and self.state.may_follow(number, owner) and not self.state.is_own(owner):
            # Not further than a promotion goes: a false number near the end of the range would leave none.
            self.higher = (min(number, highest_allowed(self.state.highest_known)), owner)
            return
        welcome = Welcome(
            epochs=self.epochs.to_rows(),
            epoch=self.state.promised_epoch,
            owner=self.state.promised_owner,
            role=config.broker_role,
            min_offset=log.min_offset,
            end_offset=self.end_offset,
            start_offset=self.end_offset,
            recovering=True,
            in_sync_replicas=config.in_sync_replicas,
            total_replicas=config.total_replicas,
            segment_bytes=log.segment_bytes,
        )
        _send(peer.transport, wire.encode_welcome(welcome))
        if is_known:
            self.answers[hello.node_id] = peer
        self.log.info(
            "recovery_slave_answered",
            peer=peer.transport.peer,
            node_id=hello.node_id,
            is_known=is_known,
            slave_end=hello.end_offset,
            end_offset=self.end_offset,
            epoch=last.number if last is not None else 0,
        )

    def fetch(self) -> None:
        """Append the bytes that answering slaves have beyond this log's end, the most advanced slave first."""
        peers = [peer for peer in self.answers.values() if peer.hello and self._has_more(peer.hello, peer.epochs)]
        peers.sort(key=lambda peer: (peer.epochs.last_number, peer.hello.end_offset if peer.hello else 0), reverse=True)
        for peer in peers:
            assert peer.hello is not None
            if peer.hello.end_offset <= self.store.log.appended_offset:
                continue
            start = self.store.log.appended_offset
            try:
                self._fetch_from(peer, peer.hello.end_offset)
            except (HaProtocolError, TransportError) as error:
                self.log.warning(
                    "recovery_fetch_failed",
                    node_id=peer.hello.node_id,
                    why=error.why,
                    from_offset=start,
                    end_offset=self.store.log.appended_offset,
                )

    def _has_more(self, hello: Hello, epochs: EpochTable) -> bool:
        common = common_end(self.epochs, self.end_offset, epochs, hello.end_offset)
        if self.end_offset == self.store.log.min_offset and not self.epochs.entries:
            common = self.end_offset if hello.min_offset <= self.end_offset else None  # nothing is left to compare
        return common == self.end_offset < hello.end_offset and hello.min_offset <= self.end_offset

    def _fetch_from(self, peer: _Peer, to_offset: int) -> None:
        store = self.store
        appender = RawAppender(store, self.log)
        start = store.log.appended_offset
        _send(peer.transport, wire.encode_fetch(wire.Fetch(start, to_offset)))
        silent_since_ns = self.clock.monotonic_ns()
        while appender.expected_offset < to_offset:
            count = peer.transport.receive_into(peer.decoder.buffer(), ACCEPT_MS)
            now_ns = self.clock.monotonic_ns()
            if count == 0:
                raise TransportError("HA connection closed", why="the slave has closed it")
            if count is None:
                if now_ns - silent_since_ns >= FETCH_SILENCE_MS * _NS_PER_MS:
                    raise TransportError("HA connection closed", why=f"nothing received for {FETCH_SILENCE_MS} ms")
                continue
            silent_since_ns = now_ns
            peer.decoder.received(count)
            while (message := peer.decoder.next()) is not None:
                if isinstance(message, Fetched):
                    self._take_fetched(appender, message, to_offset)
            appender.dispatch()
        store.make_durable()
        self.log.warning(
            "recovered_from_slave",
            node_id=peer.hello.node_id if peer.hello is not None else "",
            from_offset=start,
            to_offset=store.log.appended_offset,
            recovered_bytes=store.log.appended_offset - start,
        )

    def _take_fetched(self, appender: RawAppender, fetched: Fetched, to_offset: int) -> None:
        end = fetched.offset + len(fetched.body)
        segment_bytes = self.store.log.segment_bytes
        if len(fetched.body) == 0:
            raise TransportError("HA connection closed", why=f"the slave no longer has offset {fetched.offset}")
        if crc32(fetched.body) != fetched.crc:
            raise HaProtocolError("HA connection closed", why=f"the CRC of [{fetched.offset}, {end}) differs")
        if (
            fetched.offset != appender.expected_offset
            or end > to_offset
            or fetched.offset // segment_bytes != (end - 1) // segment_bytes
        ):
            raise HaProtocolError(
                "HA connection closed",
                why=f"the slave sent [{fetched.offset}, {end}) instead of {appender.expected_offset}",
            )
        appender.take(fetched.offset, fetched.body)

    def judge(self) -> None:
        """Raise ``HaRecoveryNeeded`` unless enough former slaves have answered, and returned all they have."""
        end = self.store.log.appended_offset
        heard = [
            peer
            for peer in self.answers.values()
            if peer.hello is not None and (peer.hello.end_offset <= end or not self._has_more(peer.hello, peer.epochs))
        ]
        known_end = max([end, *self.known.values()])
        if len(heard) >= self.needed:
            return
        missing = sorted(self.known.keys() - {peer.hello.node_id for peer in heard if peer.hello is not None})
        if self.store.config.accept_loss:
            self.log.error("recovery_loss_accepted", from_offset=end, to_offset=known_end, missing=missing)
            self.state.forget_slaves(self.known.keys() - set(missing))
            return
        raise HaRecoveryNeeded(
            "master not started",
            why=f"it was not stopped cleanly, and {len(heard)} of {self.needed} slaves that may "
            f"have what it lost could be asked: its log ends at {end}, slaves have confirmed {known_end} or more; "
            f"missing: {', '.join(missing)}",
            hint="start the slaves, then this broker again; or promote a slave with: pocketmq ha promote; or, if "
            "everything from this offset on may be lost, start once with --accept-loss",
        )


def recover_from_slaves(
    environment: HaEnvironment,
    bind_address: str,
    port: int,
    open_listener: Callable[[str, int], Listener] = listen,
) -> int:
    """Append to an open store, before its master leads, the bytes that slaves have beyond its end; return how many.

    Listens on the HA port meanwhile, so call it before ``HaService.open_port``. Blocks for at most
    ``ha_recover_wait_ms`` and the transfer; not for the event loop. When a slave has promised a newer epoch to another
    node, this one is fenced instead (``HaState.fence``) and ``open_epoch`` will refuse. Raises ``HaRecoveryNeeded``,
    ``StoreError``, ``ConfigError`` (the port).
    """
    store, log = environment.store, environment.log
    start = store.log.appended_offset
    listener = proved(with_tls(open_listener(bind_address, max(0, port)), environment.tls), environment.secret)
    recovery = _Recovery(environment, listener)
    log.warning(
        "master_asks_slaves",
        end_offset=start,
        known_slaves=recovery.known,
        needed=recovery.needed,
        wait_ms=store.config.ha_recover_wait_ms,
    )
    try:
        recovery.listen()
        if recovery.higher != (0, ""):
            environment.state.fence(*recovery.higher)
            log.error("fenced_by_slave", epoch=recovery.higher[0], owner=recovery.higher[1])
            return 0
        recovery.fetch()
        recovery.judge()
    finally:
        recovery.close()
        listener.close()
    return store.log.appended_offset - start


def _send(transport: Transport, frame: bytes) -> None:
    """Send a small frame. Raises ``TransportError``."""
    left = memoryview(frame)
    while left:
        left = left[transport.send([left]) :]
        if left and not transport.wait_writable(HANDSHAKE_MS):
            raise TransportError("HA connection closed", why="the peer does not read")
