"""An open loop's summary, and the overload case with a broker that accepts nothing."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from bench.base.open_loop import Outcome
from bench.own.broker import overload


class NoBroker:
    address = "127.0.0.1:1"


def test_a_broker_that_accepts_nothing_ends_the_case_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a receipt there is no capacity to compare with; the counts give the reason."""
    outcome = Outcome(offered=70, timed_out=64, refused_ms=[1.0] * 6, refusals={"PCBUSY_CLEAN_QUEUE": 6})
    monkeypatch.setattr(overload, "offer", lambda load: outcome)
    broker: Any = lambda *_: nullcontext(NoBroker())  # noqa: E731
    monkeypatch.setattr(overload, "BrokerProcess", broker)
    with pytest.raises(
        RuntimeError, match=r"no capacity.*70 sends 0 were accepted, 6 refused, 64 had no answer"
    ) as raised:
        list(overload.phases(tmp_path, next(iter(overload.PACES)), True))
    assert "PCBUSY_CLEAN_QUEUE" in str(raised.value)
