"""Every declared table is filled until it is full, with entries as large as a peer may make them."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

import pocketmq.broker
import pocketmq.remoting
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.flow_control.refusal_stats import RefusalStats
from pocketmq.broker.group.client_table import ClientInfo, ClientTable
from pocketmq.broker.group.consumer_offsets import ConsumerOffsets
from pocketmq.broker.group.group_notifier import GroupNotifier
from pocketmq.broker.group.request_modes import RequestModes
from pocketmq.broker.group.subscription_groups import SubscriptionGroups
from pocketmq.broker.grpc.clients import GrpcClients, TooManyClients
from pocketmq.broker.grpc.open_transactions import OpenTransactions
from pocketmq.broker.grpc.renewal import Renewal
from pocketmq.broker.lock.lock_table import LockTable
from pocketmq.broker.metrics.label_text import LabelTexts
from pocketmq.broker.pop.ordered_batches import OrderedBatches
from pocketmq.broker.pop.pop_ledger import PopLedger
from pocketmq.broker.pull.long_polling import Hold, PullHolds
from pocketmq.broker.request.request_task import Task
from pocketmq.broker.request.sweepable_queue import SweepableQueue
from pocketmq.broker.staged.id_owners import IdOwners
from pocketmq.broker.staged.staged_table import StagedTable
from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.broker.stats.stats_items import StatsItems
from pocketmq.broker.topic.topic_table import TableFull, TopicTable
from pocketmq.broker.transaction.transaction_table import GIVEN_UP_MAX, OUTCOMES_MAX, Half, Outcome, TransactionTable
from pocketmq.common.bounds import Bound, declared_in
from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import Cause
from pocketmq.common.events import NullLog
from pocketmq.common.receipt_handle import ReceiptHandle
from pocketmq.remoting.frame import new_scratch
from pocketmq.remoting.frame_budget import FrameBudget
from pocketmq.remoting.http_server import MetricsConfig
from pocketmq.remoting.limits.config import LimitsConfig
from pocketmq.remoting.limits.server_limits import ServerLimits
from pocketmq.remoting.pending import Pending, PendingTable
from pocketmq.remoting.protocol.client import SubscriptionData
from pocketmq.remoting.protocol.pull import SetMessageRequestMode
from pocketmq.remoting.refused_requests import RefusedRequests
from pocketmq.remoting.server import RemotingServer
from pocketmq.remoting.server_config import ServerConfig

TABLE_BYTES_MAX: Final = 448 << 20
"""What one table may take with the settings that a broker has by default."""
STEPS_MAX: Final = 200_000
LONG: Final = "x" * 200
NOTHING: Final[Any] = SimpleNamespace()
CLOCK: Final = ManualClock()
DECLARED: Final = [*declared_in(pocketmq.broker), *declared_in(pocketmq.remoting)]

Filled = tuple[Any, Iterator[Any]]
"""A table, and an iterator that adds one entry with each step, for ever; full is ``TableFull`` or no change."""


def repeat(step: Callable[[int], None]) -> Iterator[None]:
    """Call ``step`` with 0, 1, 2, for ever."""
    return (step(number) for number in itertools.count())  # type: ignore[func-returns-value]


def clients() -> Filled:
    table: ClientTable[int] = ClientTable(60, 1 << 20)

    def steps() -> Iterator[None]:
        for number in itertools.count():
            with contextlib.suppress(TableFull):
                client = ClientInfo(number, f"{number}".ljust(1024, "\u4e2d"), 3, 409, 0)
                topics = [SubscriptionData(topic=f"T{number}-{each}", sub_string=LONG) for each in range(20)]
                table.register_consumer(f"{LONG}{number // 2}", client, "P", "C", "X", topics)
            with contextlib.suppress(TableFull):
                table.register_producer(f"p{number}", ClientInfo(-number, f"{number}{LONG}", 3, 409, 0))
            yield

    return table, steps()


def notifier() -> Filled:
    table: ClientTable[Any] = ClientTable(60)
    later: Any = SimpleNamespace(call_later=lambda *timer: None)
    mailbox: Any = SimpleNamespace(post=lambda call, *args: call(*args) if call.__name__ == "_changed" else None)
    groups: Any = SimpleNamespace(get=lambda name: None)
    notify = GroupNotifier(table, groups, mailbox, later, enabled=True)

    def join(number: int) -> None:
        with contextlib.suppress(TableFull):
            table.register_consumer(f"g{number}", ClientInfo(number, LONG, 3, 409, 0), "P", "C", "X", [])
        notify.members_changed(table.consumer_groups())

    return notify, repeat(join)


def offsets() -> Filled:
    table = ConsumerOffsets(300, size_bytes_max=100_000)

    def steps() -> Iterator[None]:
        for number in itertools.count():
            with contextlib.suppress(TableFull):
                table.commit(f"g{number}", LONG[:127], number % 3, 1)
            with contextlib.suppress(TableFull):
                table.commit("one", "T", number, 1)
            yield

    return table, steps()


def locks() -> Filled:
    table: LockTable[int] = LockTable(1, 100, itertools.count().__next__, 200_000)
    ids = (f"{number}".ljust(1024, "x") for number in itertools.count())
    return table, (table.try_lock("g", each, 1, [("T", number % 500)], 0) for number, each in enumerate(ids))


def peers_limits() -> ServerLimits:
    config = LimitsConfig(connects_per_address_per_second=1, address_bytes_in_per_second=1, user_connections_max=1)
    return ServerLimits(config, CLOCK)


def owners() -> Filled:
    user = SimpleNamespace(checks=True, user=SimpleNamespace(username="app"))
    table = IdOwners(cast(Any, SimpleNamespace(may_connect=lambda name: True)))
    return table, repeat(lambda number: table.check(cast(Any, SimpleNamespace(session=user)), f"id{number}"))


def limited_hosts() -> Filled:
    limits = peers_limits()

    def connect(number: int) -> None:
        limits.admits(f"host{number}")
        limits.opened(SimpleNamespace(host=f"host{number}", quota=None))

    return limits, repeat(connect)


def limited_users() -> Filled:
    limits = peers_limits()

    def speak(number: int) -> None:
        peer = SimpleNamespace(host="host", quota=None, quota_user="")
        limits.speaks(peer, f"user{number}", limits.of_users)

    return limits, repeat(speak)


def barred() -> Filled:
    limits = peers_limits()
    return limits, repeat(lambda number: limits.bar(f"host{number}", 1 << 62))


def label_sets() -> Filled:
    table: LabelTexts[int] = LabelTexts(100, str, "other")
    return table, (table.of(number) for number in itertools.count())


def last_pulls() -> Filled:
    table = BrokerCounters()
    return table, repeat(lambda number: table.group_got("T", f"g{number}", number % 3, 1, 1, 1))


def groups_with_dead_letters() -> Filled:
    table = BrokerCounters()
    return table, repeat(lambda number: table.sent_back(True, f"g{number}", "T"))


def topics() -> Filled:
    table = TopicTable(BrokerConfig(topics_max=50, queues_max=400), CLOCK)

    def steps() -> Iterator[None]:
        for number in itertools.count():
            with contextlib.suppress(TableFull):
                table.create(f"{number}{LONG[:100]}", 1 + number % 16)
            yield

    return table, steps()


def groups() -> Filled:
    table = SubscriptionGroups(BrokerConfig(subscription_groups_max=50), CLOCK)

    def steps() -> Iterator[None]:
        for number in itertools.count():
            with contextlib.suppress(TableFull):
                table.find(f"{number}{LONG}")
            yield

    return table, steps()


def holds() -> Filled:
    table = PullHolds(100, 50_000)
    return table, (table.hold(Hold(n, [("T", n, 0)], n, 100 + n * 37 % 1000, None)) for n in itertools.count())


def pop_ledger(messages: int, queues: int) -> PopLedger:
    return PopLedger(ConsumerOffsets(1_000_000), 100, messages, queues)


def popped_messages() -> Filled:
    table = pop_ledger(150, 50)

    def pop(number: int) -> None:
        turn = table.begin("g", "T", number % 3, lambda: 0)
        if turn is not None:
            table.take(turn, [turn.offset], turn.offset + 1, 1_700_000_000_000 + number, 1)

    return table, repeat(pop)


def popped_queues() -> Filled:
    table = pop_ledger(1000, 50)

    def begin(number: int) -> None:
        table.begin("g", "T", number, lambda: 0)

    return table, repeat(begin)


def ordered_batches() -> Filled:
    table = OrderedBatches(50)

    def pop(number: int) -> None:
        if table.has_room("T", "g", number):
            table.begin("T", "g", number, list(range(32)), 1, 1, "a" * 128)

    return table, repeat(pop)


def request_modes() -> Filled:
    table = RequestModes(50)

    def steps() -> Iterator[None]:
        for number in itertools.count():
            with contextlib.suppress(TableFull):
                table.put(SetMessageRequestMode(f"{number}{LONG}", f"{number}{LONG}", "POP"))
            yield

    return table, steps()


def waiting() -> Filled:
    queue: SweepableQueue[Task] = SweepableQueue(100, 50_000)
    return queue, (queue.offer(Task(NOTHING, NOTHING, n, 100 + n * 37 % 1000)) for n in itertools.count())


def statistics() -> Filled:
    table = StatsItems(0, 100)
    return table, repeat(lambda number: table.add("PUT", f"{number}{LONG}", 1))


def refusal_kinds() -> Filled:
    table = RefusalStats(CLOCK, NullLog())
    causes = [cause.value for cause in Cause]
    return table, repeat(lambda number: table.note(causes[number % len(causes)], number, LONG * 10))


def refused_requests() -> Filled:
    table = RefusedRequests(CLOCK, NullLog())

    def note(number: int) -> None:
        table.note(number, number, Cause.BAD_REQUEST, LONG * 100, remote="r", language=number, version=number)

    return table, repeat(note)


def transactions() -> Filled:
    table = TransactionTable(100)

    def steps() -> Iterator[None]:
        for number in itertools.count():
            if table.refuses(f"g{number}") is None:
                table.add(Half(number, number, 1, 0, f"g{number}", record=bytes(1 << 19)))
            yield

    return table, steps()


def ended_transactions() -> Filled:
    table = TransactionTable(100)

    def steps() -> Iterator[None]:
        for number in itertools.count():
            half = Half(number, number, 1, 0, "g")
            table.add(half)
            table.finish(half, Outcome.GIVEN_UP)
            yield

    return table, steps()


def server() -> Filled:
    nobody: Any = NOTHING
    config = ServerConfig(connections_max=50, connections_per_address_max=40)
    table = RemotingServer(config, nobody, announce=nobody, log=NullLog(), clock=CLOCK)
    strangers: Any = (SimpleNamespace(host=f"10.0.0.{number % 3}", number=number) for number in itertools.count())
    return table, (table.opened(_Hashable(each)) for each in strangers)  # type: ignore[arg-type]


class _Hashable:
    def __init__(self, like: Any) -> None:
        self.host = like.host


def half_frames() -> Filled:
    budget = FrameBudget(10_000)

    class Peer:
        charged_bytes = 0

        def close_for_budget(self) -> None:
            budget.unregister(self)

        def pause_for_budget(self) -> None:
            """Go on: a peer may have sent more than it should."""

        resume_for_budget = pause_for_budget

    def steps() -> Iterator[None]:
        while True:
            peer = Peer()
            budget.register(peer, peer)
            budget.charge(peer, 700)
            yield

    return budget, steps()


def pending() -> Filled:
    table = PendingTable(50)

    def steps() -> Iterator[None]:
        while True:
            if not table.full:
                table.add(table.next_opaque(), Pending(1, 0, 1, lambda result: None, 0))
            yield

    return table, steps()


def grpc_clients() -> Filled:
    owner = SimpleNamespace(handler=SimpleNamespace(on_close=lambda *_: None), clock=CLOCK, read_times=None)
    owner.config, owner.scratch, owner.budget = ServerConfig(), new_scratch(), FrameBudget(1)
    by = SimpleNamespace(host="h", remote="h:1", remote_host=b"", is_v6=False, local="", local_host=b"")
    by.is_encrypted, by.peer_name = False, ""
    table = GrpcClients(cast(Any, owner), None, CLOCK, lambda *_: None)

    def step(number: int) -> None:
        with contextlib.suppress(TooManyClients):
            table.of("", f"client-{number}", cast(Any, by), "JAVA")

    return table, repeat(step)


def grpc_settings() -> Filled:
    table, _ = grpc_clients()

    def step(number: int) -> None:
        with contextlib.suppress(TooManyClients):
            table._memory.add(1 << 20)

    return table, repeat(step)


def grpc_transactions() -> Filled:
    table = OpenTransactions()
    return table, repeat(lambda number: table.begun(LONG, f"{number}", number, number))


def grpc_held() -> Filled:
    table = Renewal(NOTHING, NOTHING, CLOCK)
    client = SimpleNamespace(user="", client_id="c")
    caller, handle = SimpleNamespace(client=client, session=None), ReceiptHandle(0, 0, 0, 0, "0", "b", 0, 0)
    return table, repeat(lambda number: table.add(cast(Any, caller), "g", "T", f"{number}", handle))


FILLS: Final[dict[str, Callable[[], Filled]]] = {
    "gRPC clients": grpc_clients,
    "settings and commands of gRPC clients": grpc_settings,
    "gRPC transactions": grpc_transactions,
    "messages that gRPC clients hold": grpc_held,
    "clients": clients,
    "clients and subscriptions": clients,
    "groups with notices": notifier,
    "committed offsets": offsets,
    "committed offsets in bytes": offsets,
    "queue locks": locks,
    "queue locks in bytes": locks,
    "topics": topics,
    "queues": topics,
    "subscription groups": groups,
    "held pulls": holds,
    "held pulls in bytes": holds,
    "messages in flight": popped_messages,
    "popped queues": popped_queues,
    "ordered batches": ordered_batches,
    "request modes": request_modes,
    "waiting requests": waiting,
    "waiting requests in bytes": waiting,
    "statistics": statistics,
    "kinds of refusals": refusal_kinds,
    "kinds of refused requests": refused_requests,
    "open transactions": transactions,
    "half records in memory": transactions,
    "outcomes": ended_transactions,
    "given-up half messages": ended_transactions,
    "connections": server,
    "owners of transactional ids": owners,
    "limits by address": limited_hosts,
    "connects by address": limited_hosts,
    "limits by user": limited_users,
    "addresses that may not connect": barred,
    "half-received frames": half_frames,
    "requests to one peer": pending,
    "label sets of metrics": label_sets,
    "last pulls": last_pulls,
    "groups with dead letters": groups_with_dead_letters,
}
ELSEWHERE: Final = {
    "staged chunks": "tests/broker/stories/test_staged_limits.py",
    "staged attempts": "tests/broker/stories/test_staged_limits.py",
    "staged transactional ids": "tests/broker/stories/test_staged_limits.py",
}
"""Tables whose bound is kept by the checks in front of them, and the tests that fill them."""


def test_every_declared_table_is_filled_by_a_test() -> None:
    """A new declaration needs an entry here; an entry needs its declaration."""
    names = [bound.name for _, bound in DECLARED]
    assert len(set(names)) == len(names)
    assert set(names) == {*FILLS, *ELSEWHERE}
    assert {owner for owner, bound in DECLARED if bound.name in ELSEWHERE} == {StagedTable}


@pytest.mark.parametrize("bound", [bound for _, bound in DECLARED if bound.name in FILLS], ids=lambda bound: bound.name)
def test_a_table_never_exceeds_its_bound(bound: Bound) -> None:
    """Not after any step, until it is full and for as long again; and it does get nearly full."""
    table, steps = FILLS[bound.name]()
    limit = bound.limit_of(table)
    highest = 0
    count = max(2000, 2 * limit if bound.unit == "entries" else 0)
    assert count <= STEPS_MAX
    for _ in itertools.islice(steps, count):
        size = bound.size_of(table)
        assert size <= limit
        highest = max(highest, size)
    assert highest > limit // 3


@pytest.mark.parametrize("bound", [bound for _, bound in DECLARED], ids=lambda bound: bound.name)
def test_a_setting_that_is_named_exists_and_keeps_the_table_small(bound: Bound) -> None:
    """Its default, times the size of an entry, is less memory than a small broker has."""
    value = bound.limit if isinstance(bound.limit, int) else 0
    in_bytes = {owner for owner, each in DECLARED if each.unit == "bytes"}
    if bound.unit == "entries" and any(owner in in_bytes for owner, each in DECLARED if each is bound):
        return  # the bound in bytes is the smaller one
    if bound.setting:
        section, _, key = bound.setting.partition(".")
        value = getattr({"broker": BrokerConfig, "remoting": ServerConfig, "metrics": MetricsConfig}[section](), key)
    assert value * (bound.entry_bytes or 1) <= TABLE_BYTES_MAX


def test_the_limits_of_evicting_tables_are_reached() -> None:
    """The constants that the fills above go beyond."""
    assert 2 * max(OUTCOMES_MAX, GIVEN_UP_MAX) < STEPS_MAX
