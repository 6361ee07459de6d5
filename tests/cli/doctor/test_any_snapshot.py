"""Snapshots of any content: the doctor judges them all, and its output is printable."""

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.cli.doctor.broker_metrics import BrokerSettings, Snapshot
from pocketmq.cli.doctor.diagnosis import diagnose, examine
from pocketmq.cli.doctor.report import plain_lines
from pocketmq.cli.doctor.session import Round
from pocketmq.remoting.telemetry import (
    BucketCount,
    FlushTelemetry,
    PageCacheTelemetry,
    PairTelemetry,
    PoolTelemetry,
    RefusalCount,
    RefusedRequestCount,
    SlowRequest,
    StageTelemetry,
    TelemetrySnapshot,
)
from tests.cli.doctor.snapshots import (
    settings,
)

_INT = st.integers(-(1 << 63), (1 << 63) - 1)
_FLOAT = st.floats() | st.just(math.inf)
_TEXT = st.text(max_size=20) | st.sampled_from(["SendMessageThread", "PullMessageThread", "append", "lock_wait", "all"])
_CAUSES = ["page_cache_busy", "queue_timeout", "queue_full", "no_write_buffer", "fenced", "bad_request", "x"]
_REMARKS = ["[REJECTREQUEST]x", "[OVERLOAD]x", "[PCBUSY_CLEAN_QUEUE]x", "[TIMEOUT_CLEAN_QUEUE]x", "[PC_SYNCHRONIZED]x"]


_PLAIN: Mapping[object, st.SearchStrategy[Any]] = {int: _INT, float: _FLOAT, str: _TEXT, bool: st.booleans()}


def _struct(kind: type[Any], **special: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    return st.builds(kind, **{name: special[name] if name in special else _PLAIN[of] for name, of in fields.items()})


def _listed(kind: type[Any], **special: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(_struct(kind, **special), max_size=4)


_TELEMETRY = st.builds(
    TelemetrySnapshot,
    window_s=_FLOAT,
    pairs=_listed(PairTelemetry),
    stages=_listed(StageTelemetry, stage=st.sampled_from(["read", "queue_wait", "lock_wait", "append", "process"])),
    refused_requests=_listed(RefusedRequestCount, cause=st.sampled_from(_CAUSES), remark=_TEXT),
    refusals=_listed(RefusalCount, cause=st.sampled_from(_CAUSES), remark=st.sampled_from(_REMARKS) | _TEXT),
    page_cache=_struct(PageCacheTelemetry),
    pool=st.none() | _struct(PoolTelemetry),
    flush=_struct(FlushTelemetry),
    put_times=_listed(BucketCount),
    slowest=_listed(SlowRequest, stages=st.dictionaries(_TEXT, _FLOAT, max_size=2)),
)


_VALUES = (
    _TEXT | _INT.map(str) | _FLOAT.map(str) | st.sampled_from(["true", "false", "1.5 MiB", "", "9" * 400, "0.5 0.5"])
)
_RUNTIME = st.dictionaries(
    st.sampled_from(
        [
            *("putTps", "getTransferedTps", "dispatchBehindBytes", "remainHowManyDataToFlush", "commitLogDiskRatio"),
            *("pageCacheLockTimeMills", "remainTransientStoreBufferNumbs", "sendThreadPoolQueueSize", "pullHolds"),
            *("sendThreadPoolQueueCapacity", "sendThreadPoolQueueHeadWaitTimeMills", "putMessageFailedTimes"),
            *("bootTimestamp", "brokerVersionDesc", "putLatency99", "consumeQueueDiskRatio", "sendThreadPoolRefused"),
        ]
    ),
    _VALUES,
)
_SNAPSHOTS = st.builds(
    Snapshot,
    broker=_TEXT,
    address=st.just("127.0.0.1:1"),
    at_ms=st.integers(0, 1 << 41),
    runtime=_RUNTIME,
    telemetry=st.none() | _TELEMETRY,
    pocketmq=st.booleans(),
)


@pytest.mark.slow
@given(_SNAPSHOTS, st.dictionaries(st.sampled_from(sorted(settings())), _VALUES), st.none() | _SNAPSHOTS)
def test_no_snapshot_makes_the_doctor_raise(now: Snapshot, given: dict[str, str], before: Snapshot | None) -> None:
    """Whatever a broker sends, the doctor prints findings, areas, lines and JSON."""
    diagnosis = examine(now, BrokerSettings(given), before)
    assert list(diagnosis.findings) == diagnose(now, given, before)
    lines = list(plain_lines([Round(diagnosis=diagnosis)]))
    assert all(line.isprintable() for line in lines)
    msgspec.json.encode(diagnosis)
    for finding in diagnosis.findings:
        assert finding.evidence
        assert finding.cause
        assert finding.cure
