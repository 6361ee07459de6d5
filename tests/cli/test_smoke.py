"""Each command once as a process: it starts, imports its modules, prints, and ends with its code.

All other effects of a command are tested inside the process of the tests. Half of the processes run in the soak only.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.testing import PocketBroker
from tests.cli.conftest import RunCommand

pytestmark = pytest.mark.slow
soak = pytest.mark.soak


@pytest.fixture(scope="module")
def broker() -> Iterator[PocketBroker]:
    with PocketBroker() as running:
        yield running


def test_produce_and_consume(broker: PocketBroker, run_process: RunCommand) -> None:
    """The lines come through a pipe."""
    env = {"POCKETMQ_NAMESRV": broker.namesrv}
    assert run_process("topic", "create", "Smoke", "--queues", "1", env=env).returncode == 0
    assert run_process("produce", "Smoke", stdin=b"1\n2\n3\n", env=env).returncode == 0
    done = run_process("consume", "Smoke", "--group", "smoke", env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"1\n2\n3\n", b"")


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("group", "list"), 0, b"group"),
        pytest.param(("ha", "status"), 0, b"pocket", marks=soak),
        pytest.param(("lock", "list"), 0, b"", marks=soak),
        (("message", "query", "NoSuchTopic", "--key", "k"), 1, b"error: "),
        pytest.param(("dlq", "list"), 0, b"", marks=soak),
        pytest.param(("transaction", "list"), 0, b"", marks=soak),
        (("doctor",), 0, b"append lock free now"),
        (("request", "NoSuchTopic", "-m", "x", "--timeout", "1ms"), 1, b"error: "),
        pytest.param(("trace", "0" * 32), 1, b"error: ", marks=soak),
    ],
)
def test_what_asks_a_broker(
    broker: PocketBroker, run_process: RunCommand, arguments: tuple[str, ...], code: int, told: bytes
) -> None:
    done = run_process(*arguments, env={"POCKETMQ_NAMESRV": broker.namesrv})
    assert done.returncode == code, done.stderr
    assert told in done.stdout + done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("log", "verify", "no_such_directory"), 1, b"no_such_directory"),
        (("retry-store", "list", "no_such_store"), 2, b"no_such_store"),
        (("scenario", "list"), 0, b"too-many-requests"),
        pytest.param(("pipeline", "--help"), 0, b"Usage", marks=soak),
        pytest.param(("bench", "--help"), 0, b"Usage", marks=soak),
        (("standalone", "--no-such-option"), 2, b"No such option"),
    ],
)
def test_commands_without_a_broker(
    run_process: RunCommand, tmp_path: Path, arguments: tuple[str, ...], code: int, told: bytes
) -> None:
    done = run_process(*arguments)
    assert done.returncode == code, done.stderr
    assert told in done.stdout + done.stderr
    assert b"Traceback" not in done.stderr
