"""The recorded list of request codes is that of RocketMQ's jars."""

import re
import subprocess

import pytest

from docs.tables import rocketmq_codes
from tests.interop.toolchain import classpath

CONSTANT = re.compile(r"public static final int (\w+) = (-?\d+);")


@pytest.mark.parametrize(
    ("kind", "version", "name"),
    [
        ("client-4.9", "4.9.8", "org.apache.rocketmq.common.protocol.RequestCode"),
        ("client-5.3", "5.3.3", "org.apache.rocketmq.remoting.protocol.RequestCode"),
    ],
)
def test_the_list_of_codes_is_that_of_the_jar(kind: str, version: str, name: str) -> None:
    """tests/vectors/rocketmq-request-codes.txt, which the tests without Java use."""
    said = subprocess.run(
        ["javap", "-constants", "-cp", classpath(kind), name], capture_output=True, text=True, timeout=60, check=True
    )
    of_jar = {int(number): constant for constant, number in CONSTANT.findall(said.stdout)}
    recorded = {code: constant for code, (constant, versions) in rocketmq_codes().items() if version in versions}
    assert len(of_jar) > 90
    assert recorded == of_jar
