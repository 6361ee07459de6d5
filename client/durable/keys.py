"""The order of keyed sends around the retry store: later messages of a key never overtake earlier ones.

Lives here: ``KeyedSends``: one section in flight for each queue, the rest behind it. A message behind one that waits in
the store is stored too.

A key is a sharding key of a topic, or a queue that the caller's selector chose. While a message of a key is in flight
or waits, the key stays at its queue.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.durable.entry import UNROUTED, lane_of, queue_of
from pocketmq.client.message.identified_message import uniq_keys_of
from pocketmq.client.message.receipts import Receipt
from pocketmq.client.producer.pending_send import PendingSend
from pocketmq.client.producer.send_port import SendPort
from pocketmq.client.sender.retry import ATTEMPT_MS_MIN
from pocketmq.client.sender.section import FRAME_BYTES_TARGET, unbuilt_bytes
from pocketmq.common.errors import PocketMQError
from pocketmq.remoting.errors import RemotingTooMuchRequestError


class KeyedItem:
    """A send with its key and the id that all its attempts carry."""

    __slots__ = ("key", "send", "uniq_key")

    def __init__(self, send: PendingSend, key: str, uniq_key: bytes) -> None:
        self.send = send
        self.key = key
        self.uniq_key = uniq_key


class KeyState:
    """Messages of one key: ``live`` in memory, ``pending`` on their way into the store, ``waiting`` in it."""

    __slots__ = ("lane", "live", "pending", "queue", "waiting")

    def __init__(self, queue: MessageQueue | None) -> None:
        self.queue = queue
        self.lane = ""
        self.live = self.pending = self.waiting = 0


class _Lane:
    """The sends to one queue that are in memory. ``busy``: a section is in flight, or about to be made."""

    __slots__ = ("busy", "items")

    def __init__(self) -> None:
        self.items: deque[KeyedItem] = deque()
        self.busy = False


class KeyedSends:
    """Sends in order. Belongs to the event loop of its producer.

    ``keep(items, states, error)`` hands messages over to the store, in order, and reports the outcome of each through
    ``confirmed``. ``wants(error)``: whether a send that failed with ``error`` is to be kept.
    """

    def __init__(
        self,
        port: SendPort,
        keep: Callable[[list[KeyedItem], list[KeyState], PocketMQError], None],
        wants: Callable[[BaseException], bool],
    ) -> None:
        self._port = port
        self._settle = port.settle
        self._keep = keep
        self._wants = wants
        self._keys: dict[tuple[str, str], KeyState] = {}
        self._lanes: dict[MessageQueue, _Lane] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        """How many keys have messages in flight or waiting."""
        return len(self._keys)

    async def wait_idle(self, timeout_s: float) -> None:
        """Wait until nothing is in memory, at most ``timeout_s``."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return  # ``end`` keeps the rest

    # -- sends -------------------------------------------------------------------------------------------------

    def behind(self, send: PendingSend) -> bool:
        """Take a send whose key waits in the store, whatever its route; return whether it was taken."""
        key = send.message.sharding_key
        if not key or send.selector is not None:
            return False
        state = self._keys.get((send.message.topic, key))
        if state is None or not (state.pending or state.waiting):
            return False
        self.send(send, state.queue)
        return True

    def send(self, send: PendingSend, queue: MessageQueue | None, *, held: bool = False) -> None:
        """Send to ``queue``, or to the queue of the send's key; or store it behind the waiting messages of its key.

        ``held``: it already counts as in flight.
        """
        if not held:
            self._port.hold(send)
        topic = send.message.topic
        if send.selector is None:
            key = send.message.sharding_key or ""
        else:
            assert queue is not None  # a selector chooses among the queues of a route
            key = f"\x1e{queue.broker_name}\x1e{queue.queue_id}"
        state = self._keys.get((topic, key))
        if state is None:
            state = self._keys[topic, key] = KeyState(queue)
        elif state.queue is None and not (state.pending or state.waiting):
            state.queue = queue
        if state.pending or state.waiting or state.queue is None:
            self._keep([self._item(send, key)], [state], behind_error())
            return
        lane = self._lanes.get(state.queue)
        if lane is None:
            lane = self._lanes[state.queue] = _Lane()
            self._idle.clear()
        lane.items.append(self._item(send, key))
        state.live += 1
        if not lane.busy:
            lane.busy = True
            asyncio.get_running_loop().call_soon(self._next, state.queue, lane)

    def _item(self, send: PendingSend, key: str) -> KeyedItem:
        return KeyedItem(send, key, uniq_keys_of((send.message,), self._port.instance.ids)[0])

    def keep_unrouted(self, send: PendingSend, error: PocketMQError) -> None:
        """Keep a send with a sharding key whose queue is not known."""
        topic, key = send.message.topic, send.message.sharding_key or ""
        state = self._keys.get((topic, key))
        if state is None:
            state = self._keys[topic, key] = KeyState(None)
        elif state.live and state.queue is not None:  # earlier ones are in flight: go behind them
            self.send(send, state.queue, held=True)
            return
        self._keep([self._item(send, key)], [state], error)

    def _next(self, queue: MessageQueue, lane: _Lane) -> None:
        """Send the messages gathered for a queue as one section."""
        now_ns = self._port.clock.monotonic_ns()
        batch: list[KeyedItem] = []
        size_bytes = 0
        while lane.items:
            item = lane.items[0]
            send, state = item.send, self._keys[queue.topic, item.key]
            if state.pending or state.waiting:
                lane.items.popleft()
                self._hand_over([item], queue.topic, behind_error())
                continue
            if (send.deadline_ns - now_ns) / 1e6 < ATTEMPT_MS_MIN:
                if batch:  # those before it are sent first
                    break
                lane.items.popleft()
                self._hand_over([item], queue.topic, _late_error())
                continue
            size_bytes += unbuilt_bytes(send.message)
            if batch and (
                size_bytes > FRAME_BYTES_TARGET
                or send.plain != batch[0].send.plain
                or send.message.wait_store_msg_ok != batch[0].send.message.wait_store_msg_ok
            ):
                break
            batch.append(lane.items.popleft())
        if not batch:
            lane.busy = False
            self._lanes.pop(queue, None)
            if not self._lanes:
                self._idle.set()
            return
        first = batch[0].send
        try:
            future = self._port.send(
                [item.send.message for item in batch],
                queue,
                plain=first.plain,
                may_move=False,
                uniq_keys=[item.uniq_key for item in batch],
                started_ns=first.started_ns,
                deadline_ns=min(item.send.deadline_ns for item in batch),
                attempts_max=first.attempts_max,
            )
        except PocketMQError as error:
            self._ended(batch, queue, lane, error)
            return
        future.add_done_callback(lambda done: self._answered(batch, queue, lane, done))

    def _answered(
        self,
        batch: list[KeyedItem],
        queue: MessageQueue,
        lane: _Lane,
        done: "asyncio.Future[Sequence[Receipt]]",
    ) -> None:
        error = done.exception()
        if error is not None:
            self._ended(batch, queue, lane, error)
            return
        for item, receipt in zip(batch, done.result(), strict=True):
            self._left(queue.topic, item.key)
            self._settle(item.send, receipt)
        self._next(queue, lane)

    def _ended(self, batch: list[KeyedItem], queue: MessageQueue, lane: _Lane, error: BaseException) -> None:
        """Store a section that was not delivered, or fail its sends; then go on with the messages behind it."""
        failure = error if isinstance(error, PocketMQError) else PocketMQError("send failed", why=repr(error))
        if self._wants(error):
            self._hand_over(batch, queue.topic, failure)
        else:
            for item in batch:
                self._left(queue.topic, item.key)
                self._settle(item.send, failure)
        self._next(queue, lane)

    def _hand_over(self, batch: list[KeyedItem], topic: str, error: PocketMQError) -> None:
        states = [self._keys[topic, item.key] for item in batch]
        for state in states:
            state.live -= 1
        self._keep(batch, states, error)

    def _left(self, topic: str, key: str) -> None:
        state = self._keys[topic, key]
        state.live -= 1
        self._forget(topic, key, state)

    # -- the store's side --------------------------------------------------------------------------------------

    @staticmethod
    def lane_for(topic: str, state: KeyState) -> str:
        """Return the lane in which messages of a key wait, and count one more as pending."""
        if not state.lane:
            state.lane = lane_of(state.queue or MessageQueue(topic, UNROUTED, -1))
        state.pending += 1
        return state.lane

    def confirmed(self, topic: str, key: str, *, kept: bool) -> None:
        """Note whether the store kept a message that was handed over."""
        state = self._keys.get((topic, key))
        if state is None:
            return
        state.pending -= 1
        state.waiting += kept
        self._forget(topic, key, state)

    def delivered(self, topic: str, key: str) -> None:
        """Note that a message of a key has left the store."""
        state = self._keys.get((topic, key))
        if state is not None and state.waiting:
            state.waiting -= 1
            self._forget(topic, key, state)

    def pinned(self, topic: str, key: str, choose: Callable[[], MessageQueue]) -> MessageQueue:
        """Return the queue of a waiting key; choose it now if it is not known."""
        state = self._keys.get((topic, key))
        if state is None:
            return choose()
        if state.queue is None:
            state.queue = choose()
        return state.queue

    def restore(self, lanes: "Iterable[tuple[str, dict[str, int]]]") -> None:
        """Take over the keys in a store that was just opened, perhaps not for the first time."""
        for state in self._keys.values():
            state.waiting = 0
        for lane, keys in lanes:
            queue = queue_of(lane)
            for key, count in keys.items():
                state = self._keys.setdefault((queue.topic, key), KeyState(None))
                state.waiting, state.lane = count, lane
                if queue.queue_id >= 0:
                    state.queue = queue
        for (topic, key), state in list(self._keys.items()):
            self._forget(topic, key, state)

    def _forget(self, topic: str, key: str, state: KeyState) -> None:
        if not (state.pending or state.waiting):
            state.lane = ""
            if not state.live:
                self._keys.pop((topic, key), None)

    def end(self) -> None:
        """Store the messages in memory that are not in flight: the producer ends."""
        for queue, lane in list(self._lanes.items()):
            if lane.items:
                items = list(lane.items)
                lane.items.clear()
                self._hand_over(items, queue.topic, behind_error())


def behind_error() -> PocketMQError:
    """Return the error of a message stored without an attempt to send it."""
    return RemotingTooMuchRequestError(
        "not sent", why="an earlier message of its key waits for a retry", hint="it is resent behind that one"
    )


def _late_error() -> PocketMQError:
    return RemotingTooMuchRequestError(
        "sendSelectImpl call timeout", why="an earlier message for its queue was not answered in time"
    )
