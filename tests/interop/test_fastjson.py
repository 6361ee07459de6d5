"""What RocketMQ's own classes read from JSON that is not quite standard is what the recorded cases say."""

from pathlib import Path
from typing import Any

import pytest

from docs.fastjson_table import vectors
from tests.interop.toolchain import start_java


@pytest.mark.parametrize("version", ["4.9", "5.3"])
def test_the_recorded_readings_are_those_of_the_jars(version: str, tmp_path: Path) -> None:
    """One heartbeat a case; a version that is missing is the time of the request."""
    with start_java(f"client-{version}", "Fastjson", directory=tmp_path) as java:
        for case in vectors():
            java.write_line(case["body"].encode().hex())
            answer: dict[str, Any] | None = java.read(20)
            assert answer is not None
            if "refused" in answer:
                answer = None
            elif isinstance(answer["subVersion"], int) and 10**12 < answer["subVersion"] < 10**15:
                answer["subVersion"] = "now"
            assert answer == case[version], case["case"]
