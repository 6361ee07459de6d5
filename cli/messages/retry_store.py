"""``pocketmq retry-store list | show | drain | purge``: look into what waits for a retry, deliver it, or throw it away.

Lives here: options and what is printed.

``list`` and ``show`` only read, also while an application owns the store. ``drain`` and ``purge`` own it meanwhile:
they wait, with a line a second, until the lease of an application that was killed has ended, and fail where one lives.
"""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketmq.cli import options
from pocketmq.cli.exit_codes import CommandFailed
from pocketmq.cli.output import print_json, print_note, print_progress, print_table
from pocketmq.cli.run import run_async

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pocketmq.client.durable.entry import Entry
    from pocketmq.client.durable.store import RetryStore, Summary

Url = Annotated[str, typer.Argument(metavar="URL", help="For instance rocksdb:///var/lib/app/retry, redis://host/0.")]
Name = Annotated[str, typer.Option("--name", help="Whose messages, in a store on a server.")]
COLUMNS = ("seq", "topic", "msg_id", "key", "bytes", "age_s", "due_in_s", "attempts", "lane", "why")


def build_app() -> typer.Typer:
    """Return the group of subcommands."""
    app = typer.Typer(help="See, deliver or remove what waits in a durable retry store.", no_args_is_help=True)
    app.command("list")(list_entries)
    app.command()(show)
    app.command()(drain)
    app.command()(purge)
    return app


def list_entries(
    url: Url,
    given_up: Annotated[bool, typer.Option("--given-up", help="What is not resent any more.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 100,
    name: Name = "default",
    as_json: options.Json = False,
) -> None:
    """List what waits, and its sum on standard error."""
    store, summary = _open(url, name, read_only=True)
    try:
        rows = []
        for entry, why in _given_up(store, limit) if given_up else _waiting(store, summary, limit):
            rows.append(_row(entry, why, given_up))
    finally:
        store.close()
    if as_json:
        print_json([dict(zip(COLUMNS, row, strict=True)) for row in rows])
    else:
        print_table(COLUMNS, rows)
    print_note(
        f"{summary.count:,} messages wait ({summary.size_bytes:,} bytes), {summary.given_up_count:,} are given up"
    )


def show(
    url: Url,
    msg_id: Annotated[str, typer.Argument(metavar="MSG_ID", help="The id of the receipt.")],
    name: Name = "default",
) -> None:
    """Show one message with its body, as JSON."""
    from pocketmq.client.durable.entry import decode_kept
    from pocketmq.common.errors import PocketMQError

    store, summary = _open(url, name, read_only=True)
    try:
        for state, entries in (
            ("waiting", _waiting(store, summary, summary.count)),
            ("given up", _given_up(store, summary.given_up_count)),
        ):
            for entry, why in entries:
                try:
                    kept = decode_kept(entry.payload)
                except PocketMQError:
                    continue
                if kept.uniq_key.decode("ascii", "replace") == msg_id:
                    fields: dict[str, Any] = {
                        "msg_id": msg_id,
                        "state": state,
                        "topic": kept.topic,
                        "tags": kept.tags,
                        "keys": kept.keys,
                        "properties": kept.properties or {},
                        "sharding_key": kept.sharding_key,
                        "broker": kept.broker,
                        "queue_id": kept.queue_id,
                        "attempts": entry.attempts,
                        "kept_ms": entry.kept_ms,
                        "maybe_stored": kept.maybe_stored,
                        "why": why or kept.why,
                        "body": kept.body.decode("utf-8", "backslashreplace"),
                    }
                    print_json(fields)
                    return
    finally:
        store.close()
    raise CommandFailed("message not found", why=f"{msg_id} is not in {store.name}")


def drain(
    url: Url,
    name: Name = "default",
    timeout_s: Annotated[float, typer.Option("--timeout-s", min=0.1, help="Give up after so long.")] = 60.0,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Deliver what waits, in order where it has one; for a process that does not come back."""

    async def body() -> None:
        import asyncio

        from pocketmq.client.durable import DurableRetry, RetryRule
        from pocketmq.client.producer.producer import Producer

        rule = RetryRule(attempts_max=1_000_000_000, age_ms_max=1 << 50, backoff_ms_first=200, backoff_ms_max=1_000)
        retry = DurableRetry(url, name=name, order_by_key=True, rules=(rule,), on_store_wait=print_progress)
        async with Producer("pocketmq-retry-store", namesrv, durable_retry=retry):
            before = retry.state.waiting
            loop = asyncio.get_running_loop()
            end_s = loop.time() + timeout_s
            retry.resend_now()
            while retry.state.waiting and loop.time() < end_s:  # noqa: ASYNC110 - the count is the store's
                await asyncio.sleep(0.05)
            left = retry.state.waiting
        print_note(f"{before - left:,} messages delivered, {left:,} left")
        if left:
            raise CommandFailed(
                "not everything was delivered",
                why=f"{left} messages wait after {timeout_s:g} s",
                hint="check the brokers",
            )

    run_async(body())


def purge(
    url: Url,
    name: Name = "default",
    waiting: Annotated[bool, typer.Option("--waiting", help="Also what still waits: those messages are lost.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask. Without a terminal it does not ask either.")
    ] = False,
) -> None:
    """Remove what was given up."""
    from pocketmq.client.durable.store import Changes

    store, summary = _open(url, name, read_only=False)
    try:
        count = summary.given_up_count + (summary.count if waiting else 0)
        if count and not yes and sys.stdin.isatty():
            typer.confirm(f"Remove {count:,} messages from {store.name}?", abort=True)
        while gone := store.given_up(0, 1_000):
            store.purge_given_up([entry for entry, _ in gone])
        while waiting and (entries := [entry for entry, _ in _waiting(store, summary, 1_000)]):
            store.write(Changes(removed=entries))
    finally:
        store.close()
    print_note(f"{count:,} messages removed")


def _open(url: str, name: str, *, read_only: bool) -> "tuple[RetryStore, Summary]":
    from pocketmq.client.durable.opening import StoreOptions, open_url
    from pocketmq.client.durable.ownership import open_when_free
    from pocketmq.common.clock import SystemClock

    store, clock = open_url(url, StoreOptions(name=name), SystemClock()), SystemClock()
    return store, store.open(read_only=True) if read_only else open_when_free(store, clock, print_progress)


def _waiting(store: "RetryStore", summary: "Summary", limit: int) -> "Iterator[tuple[Entry, str]]":
    """Yield what waits: without an order by due time, then lane by lane."""
    from pocketmq.client.durable.store import DUE_MS_MAX

    start, left = (0, 0), limit
    while left > 0 and (entries := store.due(start, DUE_MS_MAX, min(left, 1_000), 8 << 20)):
        for entry in entries:
            yield entry, ""
        left -= len(entries)
        start = (entries[-1].due_ms, entries[-1].seq + 1)
    for lane in sorted(summary.lanes):
        start_seq = 0
        while left > 0 and (entries := store.lane(lane, start_seq, min(left, 1_000), 8 << 20)):
            for entry in entries:
                yield entry, ""
            left -= len(entries)
            start_seq = entries[-1].seq + 1


def _given_up(store: "RetryStore", limit: int) -> "Iterator[tuple[Entry, str]]":
    start_seq, left = 0, limit
    while left > 0 and (found := store.given_up(start_seq, min(left, 1_000))):
        yield from found
        left -= len(found)
        start_seq = found[-1][0].seq + 1


def _row(entry: "Entry", why: str, given_up: bool) -> tuple[object, ...]:
    from pocketmq.client.durable.entry import decode_kept
    from pocketmq.common.clock import SystemClock
    from pocketmq.common.errors import PocketMQError

    now_ms = SystemClock().now_ms()
    due_in_s = None if given_up or entry.lane else round((entry.due_ms - now_ms) / 1000, 1)
    age_s = round((now_ms - entry.kept_ms) / 1000, 1)
    lane = entry.lane.replace("\x1f", "/")
    try:
        kept = decode_kept(entry.payload)
    except PocketMQError as error:
        return (
            entry.seq,
            "?",
            "?",
            entry.order_key,
            entry.size_bytes,
            age_s,
            due_in_s,
            entry.attempts,
            lane,
            str(error),
        )
    return (
        entry.seq,
        kept.topic,
        kept.uniq_key.decode("ascii", "replace"),
        (kept.sharding_key or kept.keys),
        entry.size_bytes,
        age_s,
        due_in_s,
        entry.attempts,
        lane,
        (why or kept.why).partition("\n")[0],
    )
