"""``flow-control``: refusals and their causes, from the logs of brokers and clients.

Lives here: its options, the summary on the terminal.
"""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pocketmq.common.units import plural
from pocketmq.pipeline.jobs.common import command
from pocketmq.pipeline.jobs.common.command import Job, JobFailed
from pocketmq.pipeline.jobs.flow_control.rocketmq.lines import SERVER_ZONE

if TYPE_CHECKING:
    from pocketmq.pipeline.jobs.flow_control.run import Result

SHOWN: Final = 10
_READ: Final = ("files", "lines", "events", "continued")
"""Counts of the input; the other counts are of skipped input."""


def flow_control(
    logs: Annotated[
        list[str],
        typer.Option(
            "--logs",
            "-l",
            metavar="FILE|PATTERN|DIR",
            help="Logs of PocketMQ (JSON lines) or RocketMQ, also rotated and gzip ones; repeatable.",
        ),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="New directory for tables (Parquet) and report.html.")
    ],
    traces: Annotated[
        str,
        typer.Option(
            "--traces", metavar="INPUT", help="Message traces: topic:RMQ_SYS_TRACE_TOPIC, or a path with a column body."
        ),
    ] = "",
    quiet_minutes: Annotated[
        int,
        typer.Option("--quiet-minutes", min=0, max=1440, help="Minutes without trouble that do not end an incident."),
    ] = 1,
    zone: Annotated[
        str, typer.Option("--zone", metavar="ZONE", help="Time zone of RocketMQ's logs, as its logback files have it.")
    ] = SERVER_ZONE,
    client_zone: Annotated[
        str,
        typer.Option("--client-zone", metavar="ZONE", help="Time zone of logs of RocketMQ 4 clients and applications."),
    ] = "local",
    report: Annotated[bool, typer.Option("--report/--no-report", help="Draw report.html (extra plots).")] = True,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier report.")] = False,
    as_json: command.Json = False,
    namesrv: command.Namesrv = command.DEFAULT_NAMESRV,
    broker_wait_ms: command.BrokerWaitMs = command.DEFAULT_BROKER_WAIT_MS,
    master: command.Master = "",
    conf: command.Conf = None,
    py_files: command.PyFiles = None,
) -> None:
    """Show what brokers refused, minute by minute, and the causes, with log lines as evidence.

    Reads many logs of brokers and clients: PocketMQ's ([log] format = "json"), and RocketMQ's as its logback writes
    them. All of Spark's workers must reach the files at the same paths.
    """
    from pocketmq.pipeline.jobs.common.inputs import Input
    from pocketmq.pipeline.jobs.common.session import import_spark, job_session
    from pocketmq.pipeline.jobs.flow_control.files import find_logs
    from pocketmq.pipeline.jobs.flow_control.rocketmq.lines import Zones

    paths = find_logs(logs)
    zones = Zones.checked(zone, client_zone)
    traced = Input.of(traces) if traces else None
    import_spark()
    if report:
        from pocketmq.pipeline.jobs.flow_control.plots import check_plots

        check_plots()
    if traced is not None:
        traced.check(namesrv, broker_wait_ms)
    with job_session("flow-control", master, conf, py_files, stages=True) as spark:
        from pocketmq.pipeline.jobs.common.console import note, print_json
        from pocketmq.pipeline.jobs.flow_control.run import analyze

        bodies = None if traced is None else traced.read(spark, namesrv, broker_wait_ms, with_properties=False)
        result = analyze(
            spark,
            paths,
            output,
            traces=bodies,
            quiet_minutes=quiet_minutes,
            with_report=report,
            overwrite=overwrite,
            zones=zones,
            say=note,
        )
    if as_json:
        print_json(_summary(result))
    else:
        _print(result)
    if not result.counts.get("events"):
        raise JobFailed(
            "nothing to explain",
            why="these files hold no event of PocketMQ and no line of RocketMQ",
            hint='are they logs? Those of PocketMQ need [log] format = "json", a console\'s lines are for people',
        )


def _summary(result: "Result") -> dict[str, Any]:
    from pocketmq.pipeline.jobs.flow_control.chain import minute_text

    return {
        "counts": result.counts,
        "refused": result.refused,
        "refused_by": result.refused_by,
        "sends_ended_in_clients": result.sends_ended,
        "incidents": result.incidents_all,
        "worst": [
            {
                "broker": incident.broker,
                "begin": minute_text(incident.begin_ms),
                "minutes": incident.minutes,
                "refused": incident.refused,
                "sends_ended": incident.sends_ended,
                "classes": [chain.number for chain in chains],
                "summary": chains[0].summary,
                "complete": chains[0].complete,
            }
            for incident, chains in result.incidents[:SHOWN]
        ],
        "output": result.output,
        "report": result.report,
    }


def _print(result: "Result") -> None:
    from pocketmq.pipeline.jobs.common.console import note, print_table
    from pocketmq.pipeline.jobs.flow_control.chain import minute_text

    rows = [
        (
            minute_text(incident.begin_ms),
            incident.broker,
            incident.minutes,
            incident.refused,
            incident.sends_ended,
            " ".join(str(chain.number) for chain in chains),
            chains[0].summary,
        )
        for incident, chains in result.incidents[:SHOWN]
    ]
    print_table(("begin_utc", "broker", "minutes", "refused", "ended_in_clients", "class", "cause"), rows)
    counts = result.counts
    passed = {name: count for name, count in counts.items() if name not in _READ}
    note(", ".join(plural(counts.get(f"{what}s", 0), what) for what in ("file", "line", "event")))
    if passed:
        note("skipped: " + ", ".join(f"{name} {count:,}" for name, count in sorted(passed.items())))
    more = result.incidents_all - len(rows)
    if more > 0:
        note(f"{plural(more, 'smaller incident')}: see the table incidents")
    note(f"tables: {result.output}" + (f", report: {result.report}" if result.report else ""))


JOB: Final = Job(
    "flow-control",
    flow_control,
    (
        "--logs /var/log/pocketmq --output /data/flow-control",
        "--logs '/logs/broker-*/broker.log*' --logs /logs/clients --traces topic:RMQ_SYS_TRACE_TOPIC -o report",
        "--logs broker.log.gz --output report --overwrite --json",
    ),
)

if __name__ == "__main__":
    JOB.script()
