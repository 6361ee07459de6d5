"""What waits: delayed messages by level and by time, and transactions without a decision.

Lives here: ``routes``, ``Level``, ``levels_of``.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pocketmq.client.admin.transaction_admin import end_transactions, open_transactions
from pocketmq.common.errors import MessageIllegal, PocketMQError
from pocketmq.common.redelivery import DEFAULT_DELAY_LEVELS
from pocketmq.common.topics import SCHEDULE_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from pocketmq.dashboard.pages.desk import desk_of
from pocketmq.dashboard.show.words import counted
from pocketmq.dashboard.watch.state import BrokerState
from pocketmq.remoting.protocol.transaction import OpenTransaction

TRANSACTIONS_MAX: Final = 64
"""Open transactions on a page, the oldest of each broker."""
_LEVEL_KEY: Final = "scheduleMessageOffset_"
_DELAYS: Final = DEFAULT_DELAY_LEVELS.split()


@dataclass(frozen=True, slots=True)
class Level:
    """A delay level on a broker: messages that wait in it. ``delay``: of RocketMQ's default levels."""

    broker: str
    number: int
    delay: str
    waiting: int


def levels_of(brokers: Iterable[BrokerState]) -> list[Level]:
    """Return the levels in which messages wait (``scheduleMessageOffset_N`` of the runtime table: offset,end)."""
    found = []
    for broker in brokers:
        for key, value in broker.runtime.items():
            number, (offset, _, end) = key.removeprefix(_LEVEL_KEY), value.partition(",")
            if not key.startswith(_LEVEL_KEY) or not all(map(_is_small_number, (number, offset, end))):
                continue
            level, waiting = int(number), int(end) - int(offset)
            delay = _DELAYS[level - 1] if 0 < level <= len(_DELAYS) else "?"
            if waiting > 0:
                found.append(Level(broker.label, level, delay, waiting))
    return sorted(found, key=lambda each: (each.broker, each.number))


def _is_small_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20


async def _waiting(request: Request) -> Response:
    desk = desk_of(request)
    entry = await desk.enter(request)
    admin = await entry.watch.start()

    async def ask() -> tuple[list[tuple[str, OpenTransaction]], str]:
        try:
            return await open_transactions(admin, max_count=TRANSACTIONS_MAX), ""
        except PocketMQError as error:
            return [], str(error)

    transactions, problem = await desk.answers.get((entry.visit.credentials, "transactions"), ask)
    masters = [each for each in entry.state.masters if not each.error]
    return desk.page(
        entry,
        "waiting.html",
        title="Waiting",
        levels=levels_of(masters),
        masters=masters,
        transactions=transactions,
        problem=problem,
        given_up=entry.state.topics.get(TRANS_CHECK_MAX_TIME_TOPIC),
        schedule_topic=SCHEDULE_TOPIC,
    )


async def _decide(request: Request) -> Response:
    desk = desk_of(request)
    entry = await desk.enter(request)
    fields = await desk.form(entry)
    decision = fields.get("decision", "")
    wanted = {value for name, value in fields.items() if name.startswith("id-")}
    if decision not in ("commit", "rollback") or not wanted:
        raise MessageIllegal("nothing was decided", why="choose transactions, and commit or roll back")
    admin = await entry.watch.start()
    known = await open_transactions(admin, max_count=TRANSACTIONS_MAX)
    chosen = [(name, each) for name, each in known if id_of(name, each) in wanted]
    ended = await end_transactions(admin, chosen, commit=decision == "commit")
    refused = [why for _, _, why in ended if why]
    what = (
        f"{'committed' if decision == 'commit' else 'rolled back'} {counted(len(ended) - len(refused), 'transaction')}"
    )
    gone = len(wanted) - len(chosen)
    what += f"; {gone} had been decided meanwhile" if gone > 0 else ""
    what += f"; {len(refused)} were refused, the first: {refused[0]}" if refused else ""
    return desk.done(entry, what, "/waiting")


def id_of(broker: str, transaction: OpenTransaction) -> str:
    """Return what names an open transaction in a form."""
    return f"{broker}:{transaction.queue_offset}:{transaction.physical_offset}"


routes: Final = [
    Route("/waiting", _waiting),
    Route("/waiting/decide", _decide, methods=["POST"]),
]
