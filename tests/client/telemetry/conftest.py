"""Spans and metrics in memory."""

import pytest

from tests.client.telemetry.recorder import Recorder


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()
