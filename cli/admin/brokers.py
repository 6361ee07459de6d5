"""``pocketmq brokers``: which brokers the name servers know, and whether each of them answers.

Lives here: options and output. ``pocketmq broker`` runs one, so its list has a word of its own.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from pocketmq.cli import options
from pocketmq.cli.output import print_rows
from pocketmq.cli.run import run_admin
from pocketmq.common.errors import PocketMQError
from pocketmq.remoting.codes import software
from pocketmq.remoting.telemetry import TELEMETRY_KEY

if TYPE_CHECKING:
    from pocketmq.client.admin.admin import Admin

COLUMNS: Final = ("broker", "id", "role", "address", "version", "in", "out", "state")
ASKED_AT_ONCE: Final = 32
UNKNOWN: Final = "-"


def brokers(as_json: options.Json = False, namesrv: options.Namesrv = options.DEFAULT_NAMESRV) -> None:
    """List the brokers of the name server: id, role, address, version, and the messages in and out since their start.

    State: "answers", or why the broker does not. Why one refuses sends, ``pocketmq doctor`` says.
    """

    async def body(admin: "Admin") -> None:
        known = (await admin.cluster_info()).broker_addr_table
        places = sorted(
            (name, int(broker_id), address)
            for name, broker in known.items()
            for broker_id, address in broker.broker_addrs.items()
        )
        at_once = asyncio.Semaphore(ASKED_AT_ONCE)

        async def ask(address: str) -> dict[str, str] | str:
            async with at_once:
                try:
                    return await admin.broker_runtime(address)
                except PocketMQError as error:
                    return str(error)

        answers = await asyncio.gather(*(ask(address) for _, _, address in places))
        rows = [broker_row(*place, answer) for place, answer in zip(places, answers, strict=True)]
        print_rows(COLUMNS, rows, as_json)

    run_admin(namesrv, body)


def broker_row(name: str, broker_id: int, address: str, answer: dict[str, str] | str) -> tuple[object, ...]:
    """Return one row of the list; ``answer``: a broker's runtime information, or why there is none."""
    role = "slave" if broker_id else "master"
    if isinstance(answer, str):
        return name, broker_id, role, address, UNKNOWN, UNKNOWN, UNKNOWN, answer
    version = answer.get("brokerVersionDesc", "")
    version = software(version, is_pocketmq=TELEMETRY_KEY in answer) if version else UNKNOWN
    put, got = answer.get("msgPutTotalTodayNow", UNKNOWN), answer.get("msgGetTotalTodayNow", UNKNOWN)
    return name, broker_id, role, address, version, count(put), count(got), "answers"


def count(text: str) -> object:
    """Return a number of a runtime table, or its text if it is none: a RocketMQ broker may leave it out."""
    return int(text) if text.isascii() and text.isdecimal() else text
