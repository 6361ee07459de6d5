"""The receipt for a message that waits in the retry store.

Lives here: ``StoredForRetry``.
"""

import asyncio
import concurrent.futures
import threading

from pocketmq.client.message.receipts import Receipt, SectionOutcome, SendStatus
from pocketmq.common.errors import PocketMQError, Stored

_lock = threading.Lock()
"""Between the event loop, which settles receipts, and the threads that query them; held for a few instructions."""


class StoredForRetry(Receipt):
    """Proof that a message is in the retry store: no broker has confirmed it, and it is resent until one does.

    ``status`` is ``STORED_FOR_RETRY``; ``broker``, ``offset_msg_id`` are empty, ``queue_id`` and ``queue_offset`` -1.
    ``msg_id`` is the id that every resend carries. ``error``: why the send failed.
    """

    __slots__ = ("__weakref__", "_future", "_outcome_words", "_result", "error")

    def __init__(self, topic: str, uniq_key: bytes, error: PocketMQError, durability: str) -> None:
        attempts = len(getattr(error, "attempts", ()))
        outcome = SectionOutcome(
            topic,
            "",
            -1,
            -1,
            SendStatus.STORED_FOR_RETRY,
            attempts=attempts,
            waited=False,
            duplicate_possible=error.stored is not Stored.NO,
        )
        super().__init__(outcome, 0, uniq_key)
        self.error = error
        self._outcome_words = durability
        self._result: Receipt | PocketMQError | None = None
        self._future: concurrent.futures.Future[Receipt] | None = None

    @property
    def durability(self) -> str:
        """Where the message is kept until a broker has it, in words."""
        return f"no broker has confirmed it; {self._outcome_words}; it is resent until a broker has it"

    @property
    def is_delivered(self) -> bool:
        """Whether a broker has it, as far as this process knows."""
        return isinstance(self._result, Receipt)

    async def delivered(self) -> Receipt:
        """Wait until a broker has it and return the broker's receipt. From any event loop.

        Raises ``GivenUpError`` when it is no longer resent, ``NotStarted`` when this producer stops first: the
        message then stays in the store, and the next producer with that store resends it.
        """
        return await asyncio.wrap_future(self._asked())

    def wait_delivered(self, timeout_s: float | None = None) -> Receipt:
        """``delivered`` for plain threads; raises ``TimeoutError`` too. Not in the event loop's own thread."""
        return self._asked().result(timeout_s)

    def _asked(self) -> "concurrent.futures.Future[Receipt]":
        # each caller has a future of its own: cancelling one must not cancel the others
        mine: concurrent.futures.Future[Receipt] = concurrent.futures.Future()
        with _lock:
            if self._future is None:
                self._future = concurrent.futures.Future()
                if self._result is not None:
                    _fill(self._future, self._result)
            shared = self._future

        def done(settled: "concurrent.futures.Future[Receipt]") -> None:
            if mine.set_running_or_notify_cancel():
                error = settled.exception()
                if error is not None:
                    mine.set_exception(error)
                else:
                    mine.set_result(settled.result())

        shared.add_done_callback(done)
        return mine

    def _settle(self, result: "Receipt | PocketMQError") -> None:
        """Record the outcome; the first one counts."""
        with _lock:
            if self._result is not None:
                return
            self._result = result
            future = self._future
        if future is not None:
            _fill(future, result)


def _fill(future: "concurrent.futures.Future[Receipt]", result: "Receipt | PocketMQError") -> None:
    if isinstance(result, Receipt):
        future.set_result(result)
    else:
        future.set_exception(result)
