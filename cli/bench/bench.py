"""``pocketmq bench``: how fast this machine produces and consumes, beside its upper bounds.

Lives here: options, the start of a broker, the choice of cases, the table.
The full suite is ``make bench``.
"""

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pocketmq.cli import options
from pocketmq.cli.connection import given
from pocketmq.cli.output import print_json, print_note, print_table
from pocketmq.cli.run import run_async

if TYPE_CHECKING:
    from pocketmq.cli.bench.cases import Row
    from pocketmq.cli.bench.floors import Floor


def bench(
    namesrv: Annotated[
        str,
        typer.Option("--namesrv", metavar="HOST:PORT[;…]", help="Measure this cluster.  [default: start a broker]"),
    ] = "",
    count: Annotated[
        int, typer.Option("-n", min=1000, help="Messages a case; one in flight sends a twentieth.")
    ] = 100_000,
    sizes: Annotated[
        list[int] | None, typer.Option("--size", help="Body bytes; repeatable.  [default: 1024, 100]")
    ] = None,
    in_flight: Annotated[int, typer.Option("--in-flight", min=1, max=100_000, help="Concurrent single sends.")] = 64,
    batch: Annotated[int, typer.Option("--batch", min=1, max=100_000, help="Messages in a batch.")] = 1000,
    floors: Annotated[bool, typer.Option("--floors/--no-floors", help="Also measure the machine's floors.")] = True,
    data_dir: Annotated[
        str | None, typer.Option("--data-dir", "-d", help="Store of the started broker.  [default: temporary]")
    ] = None,
    settings: options.Set = None,
    as_json: options.Json = False,
) -> None:
    """Measure produce and consume rates and latencies. Its topics are deleted at the end.

    Without --namesrv it starts a broker in its own process, with default settings and those of --set.
    """
    from pocketmq.cli.own_broker import OwnBroker

    with ExitStack() as stack:
        measured_floors: list[Floor] = []
        if floors:
            from pocketmq.cli.bench import floors as bench_floors

            print_note("measuring the machine's floors …")
            directory = Path(data_dir) if data_dir else Path(tempfile.gettempdir())
            measured_floors = run_async(bench_floors.measure(directory, quick=count < 500_000)) or []
        where = namesrv
        if not namesrv:
            arguments = [word for setting in settings or [] for word in ("--set", setting)]
            own = stack.enter_context(OwnBroker(data_dir=Path(data_dir) if data_dir else None, arguments=arguments))
            where = own.namesrv
        rows = run_async(_measure(where, count, sizes or [1024, 100], in_flight, batch)) or []
    _print(rows, measured_floors, _conditions(namesrv, settings or []), as_json)


async def _measure(namesrv: str, count: int, sizes: list[int], in_flight: int, batch: int) -> "list[Row]":
    from pocketmq.cli.bench import cases as bench_cases
    from pocketmq.client import Producer, PullConsumer
    from pocketmq.client.admin.admin import Admin

    rows: list[Row] = []
    topics: list[str] = []

    def fresh_topic(size_bytes: int) -> str:
        topics.append(f"Bench_{size_bytes}_{time.time_ns()}")
        return topics[-1]

    def done(row: "Row") -> None:
        rows.append(row)
        print_note(f"{row.case}, {row.size_bytes} B: {row.rate:,.0f}/s")

    try:
        async with Producer(group="pocketmq-bench", namesrv=namesrv, send_msg_timeout_ms=30_000, **given()) as producer:
            for size_bytes in sizes:
                topic = fresh_topic(size_bytes)
                one = bench_cases.produce_one_by_one
                await one(
                    producer, topic, size_bytes=size_bytes, in_flight=in_flight, count=max(in_flight, count // 50)
                )
                done(await one(producer, topic, size_bytes=size_bytes, in_flight=1, count=count // 20))
                done(await one(producer, topic, size_bytes=size_bytes, in_flight=in_flight, count=count))
                topic = fresh_topic(size_bytes)
                produced = await bench_cases.produce_batches(
                    producer, topic, size_bytes=size_bytes, batch=batch, count=count
                )
                done(produced)
                consumer = PullConsumer(group=f"pocketmq-bench-{time.time_ns()}", namesrv=namesrv, **given())
                async with consumer:
                    done(await bench_cases.consume_messages(consumer, topic, size_bytes=size_bytes))
                if _has_arrow():
                    arrow = PullConsumer(group=f"pocketmq-bench-{time.time_ns()}", namesrv=namesrv, **given())
                    async with arrow:
                        case = bench_cases.consume_arrow
                        done(await case(arrow, topic, size_bytes=size_bytes, expected=produced.count))
                    topic = fresh_topic(size_bytes)
                    case_arrow = bench_cases.produce_arrow
                    done(await case_arrow(producer, topic, size_bytes=size_bytes, batch=batch, count=count))
    finally:
        async with Admin(namesrv=namesrv, **given()) as admin:
            for topic in topics:
                await admin.delete_topic(topic)
    return rows


def _has_arrow() -> bool:
    import importlib.util

    return importlib.util.find_spec("pyarrow") is not None


def _conditions(namesrv: str, settings: list[str]) -> str:
    """Describe the settings of the measurement."""
    if namesrv:
        return f"broker at {namesrv}, its own settings; topics as it creates them; client in one process"
    changed = f" but {', '.join(settings)}" if settings else ""
    return (
        "own broker, default settings (index on, ASYNC_FLUSH, group checksums on, mapped append)"
        f"{changed}; one topic a case, 4 queues; broker and client one process each"
    )


def _print(rows: "list[Row]", floors: "list[Floor]", conditions: str, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "conditions": conditions,
                "floors": [{"case": each.name, "rate": each.rate, "p50_ms": each.p50_ms} for each in floors],
                "cases": [
                    {
                        "case": row.case,
                        "size_bytes": row.size_bytes,
                        "count": row.count,
                        "elapsed_s": row.elapsed_s,
                        "rate": row.rate,
                        "p50_ms": row.percentile_ms(0.5),
                        "p99_ms": row.percentile_ms(0.99),
                    }
                    for row in rows
                ],
            }
        )
        return
    table: list[tuple[object, ...]] = []
    table += [(f"floor: {floor.name}", "", int(floor.rate), "", _ms(floor.p50_ms), "") for floor in floors]
    for row in rows:
        megabytes = f"{row.rate * row.size_bytes / 1e6:,.0f}"
        times = _ms(row.percentile_ms(0.5)), _ms(row.percentile_ms(0.99))
        table.append((row.case, row.size_bytes, int(row.rate), megabytes, *times))
    print_table(("case", "body bytes", "messages/s", "MB/s", "p50 ms", "p99 ms"), table, title="pocketmq bench")
    print_note(conditions)


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
