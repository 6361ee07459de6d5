"""Rules: requests that are refused for their content, by client.

Lives here: the consequences for a client whose heartbeats, sends or pulls are refused.
"""

from collections.abc import Iterator
from typing import Final

from pocketmq.cli.doctor.broker_metrics import BrokerMetrics
from pocketmq.cli.doctor.finding import Area, Finding, Severity
from pocketmq.cli.doctor.words import clean, count_text
from pocketmq.common.errors import Cause
from pocketmq.common.refusals import REFUSALS
from pocketmq.common.units import plural
from pocketmq.remoting.telemetry import RefusedRequestCount

_NOT_SUPPORTED: Final = 3
_SENDS: Final = frozenset(
    (
        "SEND_MESSAGE",
        "SEND_MESSAGE_V2",
        "SEND_BATCH_MESSAGE",
        "SEND_REPLY_MESSAGE",
        "SEND_REPLY_MESSAGE_V2",
        "NATIVE_APPEND",
        "NATIVE_HALF_APPEND",
        "STAGED_TRANSACTION_WRITE",
        "NAMED_TRANSACTION_STAGE",  # the name in earlier versions
    )
)
_PULLS: Final = frozenset(("PULL_MESSAGE", "LITE_PULL_MESSAGE", "NATIVE_PULL"))
_LANGUAGES: Final = {
    "CPP": "C++",
    "DOTNET": ".NET",
    "GO": "Go",
    "JAVA": "Java",
    "NODE_JS": "Node.js",
    "PYTHON": "Python",
    "RUST": "Rust",
}
_CURES: Final = {row.cause.value: row.cure for row in REFUSALS.values()}


def request_rules(metrics: BrokerMetrics) -> Iterator[Finding]:
    """Yield a finding for each kind of request, answer and client that was refused within the last minute."""
    for refused in metrics.refused_requests:
        what, severity, consequence = _meaning(refused)
        language = _LANGUAGES.get(refused.language, clean(refused.language))
        client = f"{language} clients, version {clean(refused.version)}"
        kind = f"{refused.request}-{refused.code}-{refused.language}-{refused.version}"
        unserved = refused.code == _NOT_SUPPORTED
        yield Finding(
            key=f"refused-requests-{clean(kind).lower().replace('_', '-')}",
            area=Area.READS if refused.request in _PULLS else Area.ADMISSION,
            severity=severity,
            title=f"{plural(refused.last_minute, what)} of {client}, refused{consequence}",
            evidence=tuple(_evidence(refused)),
            cause="This version does not serve this kind of request."
            if unserved
            else "The broker refuses these requests for their content, so it will refuse a repetition, too.",
            cure="See the request codes in docs/compatibility.md: an option of the client may avoid the request."
            if unserved
            else _CURES.get(refused.cause, REFUSALS[Cause.BAD_REQUEST].cure),
            concerns=(Area.ADMISSION,),
        )


def _meaning(refused: RefusedRequestCount) -> tuple[str, Severity, str]:
    """Return the noun, the severity, and the consequence for the client."""
    if refused.request == "HEART_BEAT":
        return (
            "heartbeat",
            Severity.ERROR,
            ": these clients are not members of their groups, consumers get nothing",
        )
    if refused.request in _SENDS:
        return "send", Severity.WARNING, ": these messages were not stored"
    if refused.request in _PULLS:
        return "pull", Severity.WARNING, ": these consumers get nothing from their queues"
    name = clean(refused.request)
    return f"{name} request", Severity.NOTE, ""


def _evidence(refused: RefusedRequestCount) -> Iterator[str]:
    yield (
        f"{plural(refused.last_minute, 'request')} refused in the last minute, {count_text(refused.total)} since the "
        f'start, code {refused.code}, cause {clean(refused.cause)}; the last: "{clean(refused.remark)}"'
    )
    known = (("from", refused.remote), ("client id", refused.client_id), ("group", refused.group))
    yield f"the last: {', '.join(f'{name} {clean(value)}' for name, value in known if value or name == 'from')}"
