"""The one place where sections are made: for sends one by one, batches, Arrow rows and stages that send.

Lives here: ``Sections``.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from pocketmq.client.connection.instance import ClientInstance
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.message.receipts import Receipt
from pocketmq.client.sender.in_flight import InFlight
from pocketmq.client.sender.section import Section
from pocketmq.client.sender.sender import SectionSender


class Sections:
    """Makes the sections of one producer, and sends those that are complete.

    ``check_running`` raises ``NotStarted`` or ``WrongLoop``.
    """

    def __init__(
        self, instance: ClientInstance, sender: SectionSender, in_flight: InFlight, check_running: Callable[[], None]
    ) -> None:
        self.instance = instance
        self._clock = instance.clock
        self._sender = sender
        self._in_flight = in_flight
        self.check_running = check_running

    def new(
        self,
        key: Any,
        queue: MessageQueue,
        *,
        started_ns: int,
        deadline_ns: int,
        attempts_max: int,
        plain: bool,
        wait: bool,
        may_move: bool,
        oneway: bool = False,
        half: bool = False,
        is_resend: bool = False,
    ) -> Section:
        """Return an empty section; its records are built as messages are added if the kind of its broker is known.

        ``key``: further sends find it by this key; None: they do not. ``may_move``: a retry may choose another queue.
        """
        build = None
        if plain:
            connection = self.instance.open_connection(queue.broker_name)
            builder = self._sender.native.builder(connection, half) if connection is not None else None
            build = builder.build if builder is not None else None
        return Section(
            key,
            queue,
            build=build,
            started_ns=started_ns,
            deadline_ns=deadline_ns,
            born_ms=self._clock.now_ms(),
            attempts_max=1 if oneway else attempts_max,
            may_move=may_move,
            plain=plain,
            wait=wait,
            oneway=oneway,
            half=half,
            is_resend=is_resend,
        )

    def send(self, section: Section) -> "asyncio.Future[Sequence[Receipt]]":
        """Send a section that is complete; its receipts come together. Raises ``NotStarted``.

        A resend is not counted as in flight: the durable retry has limits of its own.
        """
        self.check_running()
        section.batch_future = future = asyncio.get_running_loop().create_future()
        if not section.is_resend:
            section.permits = 1
            self._in_flight.add(section.measure(), 1, False)
        self._sender.send_section(section)
        return future
