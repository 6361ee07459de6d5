"""``pocketmq log repair``.

Lives here: options, and the plan and its result as text.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from pocketmq.cli import options
from pocketmq.cli.exit_codes import ExitCode
from pocketmq.cli.log.opening import BytesBar, Directory, IndexNumbers, index_numbers, locked_by_broker, open_store
from pocketmq.cli.log.verify import print_report
from pocketmq.cli.output import print_json

if TYPE_CHECKING:
    from pocketmq.store.offline.repair import RepairPlan, RepairResult


def repair(
    directory: Directory,
    write: Annotated[
        bool, typer.Option("--write", help="Repair the store. Without it only the plan is shown.")
    ] = False,
    backup: Annotated[
        str,
        typer.Option("--backup", metavar="DIR", help="Directory for copies.  [default: below DIR/pocketmq/quarantine]"),
    ] = "",
    as_json: options.Json = False,
    numbers: IndexNumbers = "",
) -> None:
    """Show the plan of a repair, or (--write) carry it out.

    A repair cuts a torn tail, rebuilds queues and index, and corrects the checkpoint. With --write the store is locked,
    all changed data is copied before, and the store is verified afterwards. Exit code 1: the store is damaged, or still
    is afterwards.
    """
    if write:
        _write(directory, backup, numbers, as_json)
    else:
        _show(directory, numbers, as_json)


def _show(directory: str, numbers: str, as_json: bool) -> None:
    from pocketmq.store.offline.repair import plan_repair
    from pocketmq.store.offline.verify import verify

    reader = open_store(directory, numbers, warns=False)
    held = locked_by_broker(reader.paths.lock)
    if held is False:
        reader.layout.is_open = False  # no process writes: an unfinished record stays unfinished
    bar = BytesBar("verify", reader.layout.log_bytes)
    try:
        report = verify(reader, progress=bar.advance)
        plan = plan_repair(reader, report)
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    finally:
        bar.close()
        reader.close()
    if as_json:
        print_json({"plan": plan, "report": report})
    else:
        _print_plan(plan)
        if held:
            print("a broker has this store open: --write would refuse")
        elif plan.steps:
            print(f"nothing was changed; --write does it, after copying {plan.copied_bytes:,} bytes")
    if plan.steps or plan.stays:
        raise typer.Exit(ExitCode.FAILED)


def _write(directory: str, backup: str, numbers: str, as_json: bool) -> None:
    from pocketmq.store.offline.repair import Repair

    bar = BytesBar("verify", 0)

    def show(what: str, count: int, total: int) -> None:
        bar.start(what, total)
        bar.advance(count)

    try:
        work = Repair(directory, backup=backup, index_numbers=index_numbers(numbers), progress=show)
        result = work.run()
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    finally:
        bar.close()
    if as_json:
        print_json(result)
    else:
        _print_result(result)
    if result.after is None or not result.after.ok:
        raise typer.Exit(ExitCode.FAILED)


def _print_plan(plan: "RepairPlan") -> None:
    if not plan.steps and not plan.stays:
        print("nothing to repair")
    for step in plan.steps:
        print(f"{step.action:<20}{step.why}")
        for start, end in step.ranges[:20]:
            print(f"{'':<20}offsets {start:,} to {end:,}")
        for topic, queue_id in step.queues[:20]:
            print(f"{'':<20}{topic} queue {queue_id}")
        if len(step.queues) > 20:
            print(f"{'':<20}... {len(step.queues) - 20:,} more")
    for text in plan.stays:
        print(f"{'stays':<20}{text}")


def _print_result(result: "RepairResult") -> None:
    _print_plan(result.plan)
    if result.backup:
        print(f"copies of the changed files: {result.backup}")
    if result.queue_entries:
        print(f"{result.queue_entries:,} queue entries written")
    if result.index_entries:
        print(f"{result.index_entries:,} index entries written")
    for text in result.skipped:
        print(f"left out: {text}")
    if result.after is not None and result.plan.steps:
        print("\nafterwards:")
        print_report(result.after)
