"""``pocketmq retry-store list | show | drain | purge``: shows, delivers or removes messages that wait for a retry.

Lives here: options and output.

``list`` and ``show`` only read, also while an application owns the store. ``drain`` and ``purge`` own it meanwhile:
they wait, with a line a second, until the lease of a killed application has ended, and fail if the application runs.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketmq.cli import options
from pocketmq.cli.connection import given
from pocketmq.cli.exit_codes import CommandFailed
from pocketmq.cli.output import print_json, print_note, print_progress, print_rows, time_or_none
from pocketmq.cli.run import build_group, confirm, run_async

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pocketmq.client.durable.entry import Entry
    from pocketmq.client.durable.store import RetryStore, Summary

Url = Annotated[str, typer.Argument(metavar="URL", help="E.g. rocksdb:///var/lib/app/retry or redis://host/0.")]
Name = Annotated[str, typer.Option("--name", help="Name of the application's part in a store on a server.")]
COLUMNS = ("seq", "topic", "msg_id", "key", "bytes", "age_s", "due_in_s", "attempts", "lane", "why")


def build_app() -> typer.Typer:
    """Return the group of subcommands."""
    help_text = "Show, deliver or remove the messages in a durable retry store."
    return build_group(help_text, list=list_entries, show=show, drain=drain, purge=purge)


def list_entries(
    url: Url,
    given_up: Annotated[bool, typer.Option("--given-up", help="Only messages that are not resent any more.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of messages.")] = 100,
    name: Name = "default",
    as_json: options.Json = False,
) -> None:
    """List the waiting messages, and their total on standard error."""
    store, summary = _open(url, name, read_only=True)
    try:
        entries = _given_up(store, limit) if given_up else _waiting(store, summary, limit)
        rows = [_row(entry, why, given_up) for entry, why in entries]
    finally:
        store.close()
    print_rows(COLUMNS, rows, as_json)
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
                        "kept": time_or_none(entry.kept_ms),
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
    timeout: options.Timeout = "60s",
    former_timeout_s: Annotated[float | None, typer.Option("--timeout-s", min=0.1, hidden=True)] = None,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Deliver the waiting messages, ordered ones in order; for an application that will not return."""
    former_ms = None if former_timeout_s is None else int(former_timeout_s * 1000)
    timeout_s = options.timeout_ms_of(timeout, former_ms) / 1000

    async def body() -> None:
        import asyncio

        from pocketmq.client.durable import DurableRetry, RetryRule
        from pocketmq.client.producer.producer import Producer

        rule = RetryRule(attempts_max=1_000_000_000, age_ms_max=1 << 50, backoff_ms_first=200, backoff_ms_max=1_000)
        retry = DurableRetry(url, name=name, order_by_key=True, rules=(rule,), on_store_wait=print_progress)
        async with Producer("pocketmq-retry-store", namesrv, durable_retry=retry, **given()):
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
                "not all messages were delivered",
                why=f"{left} messages wait after {timeout_s:g} s",
                hint="check the brokers",
            )

    run_async(body())


def purge(
    url: Url,
    name: Name = "default",
    waiting: Annotated[bool, typer.Option("--waiting", help="Also waiting messages, which are then lost.")] = False,
    yes: options.Yes = False,
) -> None:
    """Remove the messages that were given up."""
    from pocketmq.client.durable.store import Changes

    store, summary = _open(url, name, read_only=False)
    try:
        count = summary.given_up_count + (summary.count if waiting else 0)
        confirm(f"Remove {count:,} messages from {store.name}?", yes or not count, else_what="nothing was removed")
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
    """Yield the waiting messages: unordered ones by due time, then lane by lane."""
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
    topic, msg_id, key = "?", "?", entry.order_key
    try:
        kept = decode_kept(entry.payload)
        topic, msg_id, key = kept.topic, kept.uniq_key.decode("ascii", "replace"), kept.sharding_key or kept.keys
        why = (why or kept.why).partition("\n")[0]
    except PocketMQError as error:
        why = str(error)
    lane = entry.lane.replace("\x1f", "/")
    return (entry.seq, topic, msg_id, key, entry.size_bytes, age_s, due_in_s, entry.attempts, lane, why)
