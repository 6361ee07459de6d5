"""Telemetry on the wire: old and new nodes understand each other."""

import msgspec
import pytest

from pocketmq.remoting import telemetry
from pocketmq.remoting.telemetry import (
    PairTelemetry,
    PoolTelemetry,
    StageTelemetry,
    TelemetrySnapshot,
    TelemetryUnreadable,
    decode_telemetry,
    encode_telemetry,
)


def test_a_snapshot_survives_the_wire() -> None:
    """Decoding returns the snapshot, with and without a pool."""
    snapshot = TelemetrySnapshot(
        window_s=59.5,
        pairs=[PairTelemetry(name="SendMessageThread", queue_size=3, swept=7)],
        stages=[StageTelemetry(pair="SendMessageThread", stage="append", count=2, p99_us=12.5)],
        pool=PoolTelemetry(size=5, available=0, deficient=True),
    )
    assert decode_telemetry(encode_telemetry(snapshot)) == snapshot
    assert decode_telemetry(encode_telemetry(TelemetrySnapshot())).pool is None


def test_other_versions_are_understood() -> None:
    """A missing field has its default, an unknown one is skipped."""
    text = '{"pairs":[{"name":"X","new_figure":1}],"of_tomorrow":{"a":[1]}}'
    assert decode_telemetry(text) == TelemetrySnapshot(pairs=[PairTelemetry(name="X")])
    assert decode_telemetry("{}") == TelemetrySnapshot()


@pytest.mark.parametrize("text", ["", "[]", '{"pairs":3}', '{"window_s":"long"}', "[" * 10_000, "\ud800"])
def test_what_is_no_telemetry_is_one_kind_of_error(text: str) -> None:
    """A tool that reads a broker's answer needs to catch one exception only."""
    with pytest.raises(TelemetryUnreadable):
        decode_telemetry(text)


def test_every_field_has_a_default() -> None:
    """Otherwise a field added later would break older tools."""
    kinds: list[type[msgspec.Struct]] = [
        each for each in vars(telemetry).values() if isinstance(each, type) and issubclass(each, msgspec.Struct)
    ]
    assert TelemetrySnapshot in kinds
    for kind in kinds:
        assert all(not field.required for field in msgspec.structs.fields(kind)), kind
