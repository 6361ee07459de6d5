"""Every task and thread of a broker, its slave, the name server and a client has an owner that is notified of its
end."""

import ast
import asyncio
import contextlib
import gc
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import pocketmq.common.runner
from pocketmq.broker.ha.slave_sync import SlaveSync, TablesFrom
from pocketmq.client import Message, Producer, PushConsumer, TransactionProducer
from pocketmq.client.connection.instance import ClientInstance, TaskSet
from pocketmq.common.logs import CapturedLog
from pocketmq.common.runner import Step, Supervisor, ThreadRunner, ThreadWorker, family
from pocketmq.store.disk.os_file_system import OsFileSystem
from tests.broker.conftest import eventually
from tests.broker.ha_cluster import HaCluster

pytestmark = pytest.mark.slow

AWAITED = {
    "ChannelPool._connect": "who asked for the connection gets its error, and the pool backs off",
    "Event.wait": "one wait among several; it is cancelled by who waits",
}
NO_OWNER = {
    "MainThread": "the process",
    "asyncio_": "asyncio's pool: who awaits the call gets its error",
    "pocketmq-handler_": "a pool: who awaits the call of the handler gets its error",
    "pocketmq-transaction_": "as above, of a check",
}


class Site:
    """Everything with background work, in one loop."""

    def __init__(self, ha: HaCluster, stack: contextlib.AsyncExitStack) -> None:
        self.ha = ha
        self._stack = stack
        self.log = CapturedLog()
        self.seen: set[str] = set()

    async def start(self) -> None:
        await self.ha.start_name_server()
        self.master, self.slave = await self.ha.pair(broker_role="ASYNC_MASTER")
        self.instance = ClientInstance(self.ha.namesrv.address, log=self.log)
        self.producer = Producer("p", instance=self.instance, enable_message_trace=True)
        self.transactions = TransactionProducer("t", check=lambda message: None, instance=self.instance)
        self.consumer = PushConsumer("c", instance=self.instance)
        self.in_order = PushConsumer("o", instance=ClientInstance(self.ha.namesrv.address, log=self.log))

        @self.consumer.subscribe("T")
        async def take(message: Any) -> None:
            self.seen.add("concurrent")

        @self.in_order.subscribe("T", ordered=True)
        async def take_in_order(message: Any) -> None:
            self.seen.add("ordered")

        await self._stack.enter_async_context(self.producer)
        await self.send(b"first")
        for user in (self.transactions, self.consumer, self.in_order):
            await self._stack.enter_async_context(user)

    async def send(self, body: bytes) -> None:
        while True:
            try:
                await self.producer.send(Message("T", body))
                return
            except Exception:
                await asyncio.sleep(0.01)

    async def works(self) -> None:
        """Return once a message reaches both consumers and the slave has everything."""
        while len(self.seen) < 2:  # a new group begins at the end of its queues and may miss the first messages
            await self.send(b"more")
        sync = self.slave.replication._sync
        assert sync is not None
        await eventually(lambda: sync.rounds)
        await eventually(lambda: self.slave.store.committed_offset == self.master.store.committed_offset)
        await eventually(lambda: self.ha.route() == {"0": self.master.address, "1": self.slave.address})

    @property
    def supervisors(self) -> list[Supervisor]:
        owners = [self.master.supervisor, self.slave.supervisor, self.ha.namesrv.supervisor]
        return [*owners, self.instance.supervisor, self.in_order.instance.supervisor]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with contextlib.AsyncExitStack() as stack:
        yield Site(HaCluster(stack, tmp_path), stack)


def owned() -> tuple[set[Any], set[threading.Thread]]:
    """Return the tasks and threads that have an owner."""
    tasks: set[Any] = set()
    threads: set[threading.Thread] = set()
    for each in gc.get_objects():
        if type(each) is Supervisor:
            tasks.update(each.tasks)
        elif type(each) is TaskSet:
            tasks.update(each._tasks)
        elif type(each) is ThreadWorker and isinstance(getattr(each._on_crash, "__self__", None), Supervisor):
            threads.add(each._thread)
    return tasks, threads


async def test_every_task_and_every_thread_has_an_owner(site: Site) -> None:
    """After all have worked, only the exceptions are without an owner, each with its reason."""
    old_tasks, old_threads = asyncio.all_tasks(), set(threading.enumerate())
    await site.start()
    await site.works()
    tasks, threads = owned()
    strangers = [
        str(task)
        for task in asyncio.all_tasks() - old_tasks - tasks
        if getattr(task.get_coro(), "__qualname__", "") not in AWAITED
        and "gather.<locals>" not in str(task)  # the caller of gather receives its error
    ]
    strangers += [
        thread.name
        for thread in set(threading.enumerate()) - old_threads - threads
        if not thread.name.startswith(tuple(NO_OWNER))
    ]
    assert not strangers, "give these an owner: Supervisor.keep, Supervisor.watch, TaskSet, ThreadRunner(….crashed)"
    names = {family(task.get_name()) for task in tasks if task in asyncio.all_tasks()}
    expected = ["slave-sync", "pocketmq-routes", "pocketmq-heartbeat", "pocketmq-rebalance", "pocketmq-persist"]
    expected += ["pocketmq-locks", "pocketmq-consumer-watch", "pocketmq-trace", "pocketmq-transaction-brokers"]
    assert names >= set(expected), "the test sees what it should"
    assert len(threads) > 20


@pytest.mark.soak
async def test_each_goes_on_after_its_first_step_has_failed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test kills each loop and each thread once: the failure is logged and counted, and the work restarts."""
    killed_tasks: set[str] = set()
    killed_threads: set[str] = set()
    keep, start = Supervisor.keep, ThreadRunner.start

    def keeping(self: Supervisor, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> Any:
        alive: list[bool] = []

        async def dying() -> None:
            if not alive:
                alive.append(True)
                killed_tasks.add(name)
                raise ValueError(f"injected into {name}")
            await work()

        self._pause_s = 0.01
        return keep(self, dying, name)

    def starting(self: ThreadRunner, name: str, step: Step, *, first_after_ms: float | None = 0) -> Any:
        alive: list[bool] = []

        def dying() -> float | None:
            if not alive:
                alive.append(True)
                killed_threads.add(name)
                raise ValueError(f"injected into {name}")
            return step()

        once = "run_off_loop" in getattr(step, "__qualname__", "")  # its caller waits, and receives the error
        return start(self, name, step if once else dying, first_after_ms=first_after_ms)

    monkeypatch.setattr(Supervisor, "keep", keeping)
    monkeypatch.setattr(ThreadRunner, "start", starting)
    await site.start()
    await site.works()
    killed = {family(name) for name in killed_tasks | killed_threads}
    assert len(killed_tasks) >= 10
    assert len(killed_threads) >= 20

    def failures() -> dict[str, int]:
        counts: dict[str, int] = {}
        for supervisor in site.supervisors:
            for name, count in supervisor.failures.items():
                counts[name] = counts.get(name, 0) + count
        return counts

    await eventually(lambda: killed <= set(failures()))
    events = [*site.log.events, *site.ha.logs["m"].events, *site.ha.logs["s"].events]
    told = {family(each["task"]) for each in events if each["event"] == "task_failed"}
    silent = killed - told - {"NamesrvEpochs"}  # this name server has no log
    assert not silent
    assert all(str(each["exc_info"]).startswith("injected") for each in events if each["event"] == "task_failed")


async def test_a_slave_whose_mirror_meets_a_fault_of_ours_goes_on(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault comes while it runs: it is logged with the traceback, counted in /metrics, a warning in /health."""
    sync = SlaveSync.sync
    faults = [ZeroDivisionError("ours")]

    async def faulty(self: SlaveSync, master: TablesFrom) -> None:
        await sync(self, master)
        if self.rounds > 2 and faults:
            raise faults.pop()

    monkeypatch.setattr(SlaveSync, "sync", faulty)
    monkeypatch.setattr(OsFileSystem, "free_bytes", lambda self, path: (10**12, 2 * 10**12))
    await site.ha.start_name_server()
    _, slave = await site.ha.pair()
    mirror = slave.replication._sync
    assert mirror is not None
    await eventually(lambda: not faults)
    rounds = mirror.rounds
    await eventually(lambda: mirror.rounds > rounds)
    assert slave.supervisor.failures == {"slave-sync": 1}
    (failed,) = [each for each in site.ha.logs["s"].events if each["event"] == "task_failed"]
    assert isinstance(failed["exc_info"], ZeroDivisionError)
    assert slave.observation.health.report().warnings == ["task_failed:slave-sync"]
    assert slave.observation._metrics is not None
    assert b'pocketmq_task_failures_total{task="slave-sync"} 1.0' in b"".join(slave.observation._metrics())


async def test_a_stop_ends_what_waits_for_its_restart(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker whose loops keep failing stops as fast as any other."""

    async def broken(self: SlaveSync, address: str) -> None:
        raise ValueError("always")

    monkeypatch.setattr(SlaveSync, "sync", broken)
    await site.ha.start_name_server()
    _, slave = await site.ha.pair()
    await eventually(lambda: slave.supervisor.failures.get("slave-sync"))
    before = {task for task in asyncio.all_tasks() if task.get_name() == "slave-sync"}
    assert before
    await site.ha.stop("s")
    assert all(task.done() for task in before)


STARTS: tuple[str, ...] = (
    *("create_task", "ensure_future", "TaskGroup", "run_coroutine_threadsafe", "run_in_executor", "to_thread"),
    *("Thread", "Timer", "start_new_thread", "ThreadPoolExecutor", "ProcessPoolExecutor"),
)
SOURCES = Path(pocketmq.common.runner.__file__).resolve().parents[1]


STARTED = {
    ("broker/admin/assignments.py", "Assignments._begin", "create_task"): "answers its request with every error",
    ("broker/assembly/role_changes.py", "RoleChanges._spawn", "create_task"): "Supervisor.watch",
    ("broker/ha/members_claim.py", "MembersClaim._begin", "create_task"): "Supervisor.watch",
    ("broker/ha/replication.py", "Replication.learn_epoch", "create_task"): "its callback logs the error",
    ("common/logs.py", "Logs.close", "Thread"): "the caller waits for it, and drops what it leaves",
    ("common/runner.py", "Supervisor.keep", "create_task"): "the owner itself",
    ("common/runner.py", "ThreadWorker.__init__", "Thread"): "the owner itself",
    (
        "remoting/acceptor.py",
        "Acceptor._begin",
        "create_task",
    ): "notes every error; the server's stop waits for it",
    ("broker/grpc/entrance.py", "GrpcEntrance.start", "create_task"): "logs each failed round; ``stop`` waits for it",
    ("broker/grpc/settlement.py", "Settlement.change_soon", "create_task"): "its callback looks at the error",
    ("broker/grpc/telemetry.py", "Telemetry.serve", "create_task"): "ended with its stream, whose errors it has",
    ("remoting/grpc/http2.py", "Http2Connection._begin", "create_task"): "answers every error; ends with its call",
    ("remoting/grpc/http2.py", "Http2Connection._complete", "create_task"): "answers every error; ends with its call",
    (
        "remoting/grpc/http2.py",
        "Http2Connection._stream_ended",
        "create_task",
    ): "answers every error; ends with its call",
    ("remoting/channel_pool.py", "ChannelPool.get", "create_task"): "who asked for the connection gets its error",
}


def starts() -> set[tuple[str, str, str]]:
    """Return (file, enclosing functions, call) of all code of the servers that starts a task or a thread."""
    found: set[tuple[str, str, str]] = set()

    def walk(node: ast.AST, name: str, inside: str) -> None:
        for child in ast.iter_child_nodes(node):
            deeper = inside
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                deeper = f"{inside}.{child.name}".lstrip(".")
            elif isinstance(child, ast.Call):
                called = getattr(child.func, "attr", getattr(child.func, "id", ""))
                if called in STARTS:
                    found.add((name, inside, called))
            walk(child, name, deeper)

    for folder in ("auth", "broker", "common", "namesrv", "remoting", "store"):
        for path in sorted((SOURCES / folder).rglob("*.py")):
            source = path.read_text()
            if any(word in source for word in STARTS):
                walk(ast.parse(source), path.relative_to(SOURCES).as_posix(), "")
    return found


def test_who_starts_a_task_or_a_thread_is_named_here() -> None:
    """The owner of each is known: the supervisor, the runner, or whoever awaits the result."""
    found = starts()
    assert found - set(STARTED) == set(), "let Supervisor or ThreadRunner start it, or name its owner in STARTED"
    assert set(STARTED) - found == set(), "these start nothing any more"
