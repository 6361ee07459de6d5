"""The doctor on the write-buffer pool."""

from pocketmq.cli.doctor.diagnosis import diagnose
from pocketmq.remoting.telemetry import PoolTelemetry
from tests.cli.doctor.snapshots import refusal, settings, snapshot, telemetry, the


def test_a_pool_of_one_buffer_is_explained_the_same_in_each_finding() -> None:
    """It is too small: no finding blames a disk that has nothing to commit."""
    told = telemetry(
        pool=PoolTelemetry(size=1, available=0, locked=True, deficient=True),
        refusals=[refusal("no_write_buffer", "[REJECTREQUEST]system busy")],
    )
    found = diagnose(snapshot(told), settings(transientStorePoolEnable="true", transientStorePoolSize="1"))
    refused, deficient = the(found, "refused-no-buffer"), the(found, "pool-deficient")
    assert refused.cause == deficient.cause
    assert "with 1 none is free" in refused.cause
    assert "takes less than producers send" not in refused.cause
