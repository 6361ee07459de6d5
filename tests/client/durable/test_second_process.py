"""A store whose owner was killed is opened by another process; one whose owner lives is not.

All with real processes, a real Redis, a real MariaDB (for MySQL, too) and a real PostgreSQL.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client import Message, SendStatus
from pocketmq.client.durable import DurableRetry, RetryStoreLocked
from pocketmq.client.durable.opening import StoreOptions, open_url
from pocketmq.common.clock import SystemClock
from tests.client.durable.conftest import url_of
from tests.client.durable.test_durable_retry import SOON, bodies, producer_of, real
from tests.client.real_cluster import RealCluster

__all__ = ["real"]

pytestmark = pytest.mark.slow

KINDS = ["sqlite", "mysql", "postgresql", "redis", "rocksdb"]
LEASE_MS = 2_000
"""Of an owner that nothing proves dead: the successor waits so long, and a busy machine must not lose it before."""
HOUR_MS = 3_600_000
"""Of an owner whose death is proven: no test would live to see the end."""
LONG_MS = 60_000
"""Of an owner that lives: longer than any pause of a busy machine."""

APPLICATION = """
import asyncio, sys
from pocketmq.client import Message, Producer, SendStatus
from pocketmq.client.durable import DurableRetry, StoreLocked

async def main(url, lease_ms):
    print("ready", flush=True)
    sys.stdin.readline()
    retry = DurableRetry(url, order_by_key=True, lease_ms=int(lease_ms))
    producer = Producer("orders", namesrv="127.0.0.1:1", durable_retry=retry, send_msg_timeout_ms=300)
    try:
        await producer.start()
    except StoreLocked as error:
        print("refused", error, flush=True)
        return
    print("opened", retry.state.waiting, flush=True)
    told = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
    kept = 0
    while not told.done():
        receipt = await producer.send(Message("Orders", b"%d" % kept, sharding_key="k"))
        assert receipt.status is SendStatus.STORED_FOR_RETRY
        kept += 1
        if kept == 3:
            print("kept", flush=True)
        await asyncio.sleep(0.01)
    await producer.stop()
    print("closed", kept, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


def default_signals() -> None:
    """A test run in the background of a shell ignores SIGINT, and its children would, too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def program(*arguments: str, **options: Any) -> "Iterator[subprocess.Popen[str]]":
    """Run Python in a separate process; kill it at the end if it still runs."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        preexec_fn=default_signals,
        **options,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def application(url: str, lease_ms: int) -> "Iterator[subprocess.Popen[str]]":
    """An application that keeps messages 0, 1, 2, … of one key in its store, after a signal to begin."""
    with program("-c", APPLICATION, url, str(lease_ms)) as process:
        assert line_of(process) == "ready"
        yield process


def line_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def tell(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def begin(process: "subprocess.Popen[str]") -> None:
    """Let it open the store and keep at least three messages."""
    tell(process)
    assert line_of(process) == "opened 0"
    assert line_of(process) == "kept"


def leave_messages(url: str) -> int:
    """Let an application keep messages, and kill it. Return its process id.

    Its death is proven by all stores but Redis, which ends its lease.
    """
    with application(url, LEASE_MS if url.startswith("redis") else HOUR_MS) as owner:
        begin(owner)
        owner.send_signal(signal.SIGKILL)
        return owner.pid


@contextmanager
def silent_owner(url: str, lease_ms: int) -> Iterator[int]:
    """Let an application keep messages, and stop it: it still has its locks. Yield its process id."""
    with application(url, lease_ms) as owner:
        begin(owner)
        owner.send_signal(signal.SIGSTOP)
        os.waitpid(owner.pid, os.WUNTRACED)
        yield owner.pid


def count_in(url: str) -> int:
    store = open_url(url, StoreOptions(), SystemClock())
    count = store.open(read_only=True).count
    store.close()
    return count


def command(*arguments: str) -> Any:
    return program("-m", "pocketmq.cli.main", "retry-store", *arguments, stderr=subprocess.PIPE)


FAST_KINDS = ["sqlite", *(pytest.param(kind, marks=pytest.mark.soak) for kind in KINDS if kind != "sqlite")]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind of store that outlives its process."""
    return str(request.param)


@pytest.fixture
def url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty store."""
    return url_of(kind, request, tmp_path)


@pytest.mark.soak
async def test_a_successor_opens_the_store_of_a_killed_process(url: str, real: RealCluster) -> None:
    """With an order the start needs its store: it takes it over from the dead owner, and delivers."""
    await asyncio.to_thread(leave_messages, url)
    kept = count_in(url)
    assert kept >= 3
    retry = DurableRetry(url, order_by_key=True, rules=SOON)
    async with producer_of(real.namesrv, retry) as producer:
        last = await producer.send(Message("Orders", b"last", sharding_key="k"))
        if last.status is SendStatus.STORED_FOR_RETRY:
            await last.delivered()  # type: ignore[attr-defined]
    numbers = [b"%d" % number for number in range(kept)]
    assert [body for body, _ in await bodies(real.namesrv)] == [*numbers, b"last"]


@pytest.mark.parametrize("kind", FAST_KINDS, indirect=True)
def test_drain_opens_the_store_of_a_killed_process(url: str) -> None:
    """The command takes the store over, at once where the owner's death is proven, and delivers everything."""
    from pocketmq.testing.broker import PocketBroker

    leave_messages(url)
    kept = count_in(url)
    with PocketBroker() as broker, command("drain", url, "--namesrv", broker.namesrv) as drain:
        _, said = drain.communicate()
    assert drain.returncode == 0, said
    assert count_in(url) == 0
    assert kept >= 3


SILENT_KINDS = [
    pytest.param(kind, marks=() if kind == "sqlite" else pytest.mark.soak) for kind in KINDS if kind != "rocksdb"
]


@pytest.mark.parametrize("kind", SILENT_KINDS, indirect=True)
def test_drain_waits_for_the_lease_of_an_owner_that_may_be_dead(kind: str, url: str) -> None:
    """Nothing proves its death: the command waits with a line on standard error that names it, then delivers."""
    from pocketmq.testing.broker import PocketBroker

    with silent_owner(url, LEASE_MS) as pid:
        kept = count_in(url)
        with PocketBroker() as broker, command("drain", url, "--namesrv", broker.namesrv) as drain:
            _, said = drain.communicate()
        assert drain.returncode == 0, said
        assert count_in(url) == 0 < kept
        if kind != "redis":  # its lease may end before the command looks
            assert f"process {pid} on " in said
            assert "0.0 s of at most 4.0 s" in said


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["sqlite", "mysql", "postgresql"], indirect=True)
def test_purge_opens_the_store_of_a_killed_process(url: str) -> None:
    """It owns the store as drain does, without a producer."""
    leave_messages(url)
    with command("purge", url, "--waiting", "--yes") as purge:
        _, said = purge.communicate()
    assert purge.returncode == 0, said
    assert count_in(url) == 0


@pytest.mark.soak
def test_a_living_owner_keeps_its_store(kind: str, url: str) -> None:
    """A second process learns the owner after one sign of life at most; the owner notices no change."""
    with application(url, LONG_MS) as owner:
        begin(owner)
        with application(url, LONG_MS) as second:
            tell(second)
            refused = line_of(second)
            assert refused.startswith("refused retry store not opened")
        with command("drain", url, "--namesrv", "127.0.0.1:1") as drain:
            _, said = drain.communicate()
        assert drain.returncode == 2
        if kind != "rocksdb":
            assert f"process {owner.pid} on " in refused
            assert "it lives" in refused
            assert f"process {owner.pid} on " in said
        tell(owner)
        word, kept = line_of(owner).split()
        assert (word, owner.wait()) == ("closed", 0)
    assert count_in(url) == int(kept) >= 3


@pytest.mark.soak
def test_of_two_that_wait_one_gets_the_store(kind: str, url: str) -> None:
    """Both wait for the end of the same dead owner: the store has one owner afterwards, and all messages."""
    with application(url, LONG_MS) as first, application(url, LONG_MS) as second:
        leave_messages(url)
        left = count_in(url)
        tell(first)
        tell(second)
        said = {line_of(first): first, line_of(second): second}
        [opened] = [line for line in said if line == f"opened {left}"]
        [refused] = [line for line in said if line.startswith("refused")]
        winner = said[opened]
        if kind != "rocksdb":
            assert f"process {winner.pid} on " in refused
        assert line_of(winner) == "kept"
        tell(winner)
        word, kept = line_of(winner).split()
        assert (word, winner.wait()) == ("closed", 0)
    assert count_in(url) == left + int(kept)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
async def test_a_start_that_can_do_without_waits_in_the_background(
    url: str, real: RealCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Without an order it starts at once, reports what is not safe and why, and takes the store when the lease ends."""
    with contextlib.ExitStack() as owned:
        pid = await asyncio.to_thread(owned.enter_context, silent_owner(url, LEASE_MS))
        kept = count_in(url)
        retry = DurableRetry(url, rules=SOON, reopen_ms=3_600_000)
        real.refuse("a")
        async with producer_of(real.namesrv, retry):
            assert f"process {pid} on " in caplog.text.partition("durable_retry_without_store")[2]
            async with asyncio.timeout(60):
                while not retry.state.open:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                real.refuse("a", None)
                while retry.delivered_total < kept:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
@pytest.mark.parametrize("what", [("drain", "--namesrv", "127.0.0.1:1"), ("purge", "--yes")])
def test_ctrl_c_ends_the_wait(url: str, what: tuple[str, ...]) -> None:
    """An interrupted command ends with 130; the store is unchanged, and still its silent owner's."""
    with silent_owner(url, LONG_MS):
        kept = count_in(url)
        with command(what[0], url, *what[1:]) as waiting:
            assert waiting.stderr is not None
            assert waiting.stderr.readline().startswith("waiting for ")
            waiting.send_signal(signal.SIGINT)
            waiting.communicate()
        assert waiting.returncode == 130
        assert count_in(url) == kept
        with pytest.raises(RetryStoreLocked, match="it may be dead"):
            open_url(url, StoreOptions(), SystemClock()).open()
