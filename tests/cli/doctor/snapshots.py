"""Hand-made brokers for the doctor's rules: a healthy one, and changes to it."""

from collections.abc import Mapping, Sequence
from typing import Any

from pocketmq.cli.doctor.broker_metrics import Snapshot
from pocketmq.cli.doctor.diagnosis import diagnose
from pocketmq.cli.doctor.finding import Finding
from pocketmq.remoting.protocol.ha import HaStatusBody
from pocketmq.remoting.protocol.lock import LockInfo, LockTableBody
from pocketmq.remoting.telemetry import (
    ALL_PAIRS,
    FlushTelemetry,
    PageCacheTelemetry,
    PairTelemetry,
    RefusalCount,
    RefusedRequestCount,
    SecurityTelemetry,
    StageTelemetry,
    TelemetrySnapshot,
)

HEALTHY_SETTINGS: Mapping[str, str] = {
    "osPageCacheBusyTimeOutMills": "1000",
    "brokerFastFailureEnable": "true",
    "sendThreadPoolQueueCapacity": "10000",
    "sendQueueSizeBytesMax": str(256 << 20),
    "sendDrainMax": "4096",
    "sendMessageThreadPoolNums": "1",
    "waitTimeMillsInSendQueue": "200",
    "waitTimeMillsInPullQueue": "5000",
    "flushDiskType": "ASYNC_FLUSH",
    "syncFlushTimeout": "5000",
    "transientStorePoolEnable": "false",
    "transientStorePoolSize": "5",
    "mappedFileSizeCommitLog": str(1 << 30),
    "pullHoldsMax": "100000",
    "fileReservedTime": "72",
    "commitIntervalCommitLog": "200",
}
HEALTHY_RUNTIME: Mapping[str, str] = {
    "brokerVersionDesc": "V4_9_8",
    "bootTimestamp": "1000",
    "putTps": "1200.00 900.00 800.00",
    "getTransferedTps": "1100.00 900.00 800.00",
    "dispatchBehindBytes": "0",
    "remainHowManyDataToFlush": "4096",
    "commitLogDiskRatio": "0.40",
    "consumeQueueDiskRatio": "0.40",
    "pullHolds": "4",
    "msgPutTotalTodayNow": "5000",
    "msgGetTotalTodayNow": "4000",
    "haRole": "ASYNC_MASTER",
    "haEpoch": "1",
}


def stage(name: str, *, p50: float = 0.1, p99: float = 1.0, longest: float = 2.0, pair: str = "") -> StageTelemetry:
    """Return a stage of 1,000 requests; times in ms."""
    where = pair or (ALL_PAIRS if name in ("read", "write") else "SendMessageThread")
    return StageTelemetry(
        pair=where,
        stage=name,
        count=1000,
        p50_us=p50 * 1000,
        p99_us=p99 * 1000,
        p999_us=longest * 1000,
        max_us=longest * 1000,
        sum_us=p50 * 1e6,
    )


def pair(name: str = "SendMessageThread", **changes: Any) -> PairTelemetry:
    """Return an idle queue."""
    send = name == "SendMessageThread"
    values: dict[str, Any] = {
        "name": name,
        "queue_capacity": 10_000 if send else 100_000,
        "queue_bytes_max": 256 << 20,
        "max_wait_ms": 200 if send else 5000,
        "served": 5000,
        "drain_limit": 4096,
    }
    return PairTelemetry(**{**values, **changes})


def refusal(cause: str, remark: str = "", *, code: int = 2, total: int = 50, last_minute: int = 10) -> RefusalCount:
    """Return ten refusals of the last minute."""
    return RefusalCount(cause=cause, code=code, remark=remark, total=total, last_minute=last_minute, last_ms=1)


def refused_request(**changes: Any) -> RefusedRequestCount:
    """Return twelve heartbeats of a C++ client."""
    values: dict[str, Any] = {
        "request": "HEART_BEAT",
        "code": 1,
        "cause": "codec",
        "language": "CPP",
        "version": "63",
        "remark": "HeartbeatData refused: x",
        "remote": "10.0.0.3:5",
        "client_id": "c@1",
        "group": "billing",
        "total": 40,
        "last_minute": 12,
        "last_ms": 1,
    }
    return RefusedRequestCount(**{**values, **changes})


def telemetry(**changes: Any) -> TelemetrySnapshot:
    """Return the telemetry of a healthy broker; ``stages`` replace those of the same name and pair."""
    stages = {(each.pair, each.stage): each for each in map(stage, ("read", "queue_wait", "lock_wait", "append"))}
    stages |= {(each.pair, each.stage): each for each in changes.pop("stages", ())}
    values: dict[str, Any] = {
        "window_s": 60.0,
        "pairs": [pair(), pair("PullMessageThread")],
        "stages": list(stages.values()),
        "page_cache": PageCacheTelemetry(timeout_ms=1000, longest_hold_ms_last_minute=3),
        "security": SecurityTelemetry(),
        "flush": FlushTelemetry(mode="ASYNC_FLUSH", count=100, p50_us=500, p99_us=2000, max_us=4000),
    }
    return TelemetrySnapshot(**{**values, **changes})


def snapshot(
    told: TelemetrySnapshot | None = None,
    *,
    at_ms: int = 100_000,
    pocketmq: bool = True,
    ha: HaStatusBody | None = None,
    locks: Sequence[LockInfo] = (),
    **runtime: Any,
) -> Snapshot:
    """Return a broker; ``told`` None: without telemetry."""
    return Snapshot(
        broker="broker-a",
        address="127.0.0.1:10911",
        at_ms=at_ms,
        runtime={**HEALTHY_RUNTIME, **runtime},
        telemetry=told,
        pocketmq=pocketmq,
        ha=ha,
        locks=LockTableBody(lock_max_live_time=60_000, locks=list(locks)),
    )


def settings(**changes: str) -> dict[str, str]:
    """Return healthy settings with changes."""
    return {**HEALTHY_SETTINGS, **changes}


def keys(found: Sequence[Finding]) -> set[str]:
    """Return the rules that had a finding."""
    return {finding.key for finding in found}


def found_by(told: TelemetrySnapshot | None, changed: Mapping[str, str] | None = None, **runtime: Any) -> set[str]:
    """Return the keys of the findings of a broker."""
    return keys(diagnose(snapshot(told, **runtime), settings(**(changed or {}))))


def the(found: Sequence[Finding], key: str) -> Finding:
    """Return the finding with this key."""
    return next(finding for finding in found if finding.key == key)
