"""What ``/metrics`` says about each topic, group and kind of client, computed every few seconds by a thread of its own.

That thread may wait for the disk (the age of a message is in the log); the HTTP server's, which shows what was computed
last, never does.

Lives here: ``Figures``.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.group.client_table import ClientInfo, ClientTable
from pocketmq.broker.group.consumer_offsets import ConsumerOffsets
from pocketmq.broker.metrics.group_figures import GroupFigures
from pocketmq.broker.metrics.label_text import OTHER, LabelTexts, label_text
from pocketmq.broker.metrics.topic_figures import TopicFigures, flag_text, is_system_topic
from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.broker.stats.stats_items import GROUP_GET_NUMS, GROUP_GET_SIZE, group_key
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.clock import Clock
from pocketmq.common.runner import Runner, Worker
from pocketmq.remoting.codes import LanguageCode, version_name
from pocketmq.store.message_store import MessageStore

INTERVAL_MS: Final = 5_000.0
SHARE: Final = 50
"""A round of n ms is followed by a pause of at least 50 n: at most 2 % of one core."""
KINDS_MAX: Final = 256
"""Kinds of clients (language, version) that are counted apart; a client may announce any version."""
MODES: Final = {"CONSUME_PASSIVELY": "push", "CONSUME_ACTIVELY": "pull", "CONSUME_POP": "pop"}
"""A heartbeat's consume type → ``consume_mode`` (RocketMQ ConsumeType.getTypeCN is another name for it)."""
_LANGUAGES: Final = frozenset(int(language) for language in LanguageCode)
Lines = Mapping[str, int]
"""Label text → value."""


class Figures:
    """A service of a broker. All of it belongs to its thread but ``texts``, ``reserve_ms`` and ``age_ns``."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        offsets: ConsumerOffsets,
        clients: ClientTable[Any],
        counters: BrokerCounters,
        clock: Clock,
        *,
        series_max: int,
        is_served: bool,
        popped: Callable[[str, str, int], tuple[int, int] | None] = lambda group, topic, queue_id: None,
    ) -> None:
        """``series_max``: topics, and groups in topics, with series of their own; ``is_served`` False: it has no thread
        and computes nothing."""
        self.node = {"cluster": config.broker_cluster_name, "node_type": "broker", "node_id": config.broker_name}
        """The labels that RocketMQ gives to each series."""
        self._store = store
        self._clients = clients
        self._counters = counters
        self._clock = clock
        self._is_served = is_served
        self.topics = TopicFigures(store, topics, self.node, series_max)
        self.groups = GroupFigures(
            store, topics, offsets, clients, counters, self.node, series_max, clock.now_ms, popped
        )
        names = ("topic", "consumer_group", "is_system")
        other = label_text({**self.node, **dict.fromkeys(names, OTHER)})
        self._got: LabelTexts[str] = LabelTexts(series_max, self._got_text, other)
        self._dead: LabelTexts[str] = LabelTexts(series_max, self._got_text, other)
        self.messages_out: Lines = {}
        self.bytes_out: Lines = {}
        self.dead_letters: Lines = {}
        self.producers: Lines = {}
        self.consumers: Lines = {}
        self.render: Callable[[], list[bytes]] = list
        """Makes the text of these figures for ``/metrics``."""
        self.texts: list[bytes] = []
        """Of the last round."""
        self.reserve_ms = 0
        """Age of the oldest message of the log."""
        self.looked_ns = 0
        """When the last round ended, monotonic; 0: there was none."""
        self._lock = threading.Lock()
        self._worker: Worker | None = None

    def open(self) -> None:
        """Note where all queues end. Blocks."""
        self.topics.open()

    def start(self, runner: Runner) -> None:
        """Begin, if anybody can ask."""
        if self._is_served:
            self._worker = runner.start("BrokerFigures", self.step)

    def stop(self) -> None:
        """Stop the thread."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.stop()

    def step(self) -> float:
        """Compute everything; return the ms until the next round."""
        begin_ns = self._clock.monotonic_ns()
        with self._lock:  # a test may step beside the thread
            self.topics.fold()
            self.groups.look()
            self._look_at_counters()
            self._look_at_clients()
            earliest_ms = self._store.earliest_store_time()
            self.texts = self.render()
            self.reserve_ms = max(0, self._clock.now_ms() - earliest_ms) if earliest_ms >= 0 else 0
        self.looked_ns = self._clock.monotonic_ns()
        return max(INTERVAL_MS, SHARE * (self.looked_ns - begin_ns) / 1e6)

    def age_ns(self, now_ns: int) -> int:
        """Return the age of the results; -1: there are none yet."""
        return now_ns - self.looked_ns if self.looked_ns else -1

    def _look_at_counters(self) -> None:
        items = self._counters.items
        messages, sizes = items.totals(GROUP_GET_NUMS), items.totals(GROUP_GET_SIZE)
        self._got.keep_only(messages)
        self.messages_out = _summed((self._got.of(key), count) for key, count in messages.items())
        self.bytes_out = _summed((self._got.of(key), count) for key, count in sizes.items() if key in messages)
        dead = self._counters.dead_letters.copy()
        self.dead_letters = _summed((self._dead.of(group_key(topic, group)), n) for (group, topic), n in dead.items())

    def _look_at_clients(self) -> None:
        producers: dict[Any, ClientInfo[Any]] = {}
        for clients in self._clients.producer_groups().values():
            producers.update((client.connection, client) for client in clients)  # one may be of several groups
        self.producers = self._counted({}, producers.values())
        consumers: dict[str, int] = {}
        for name in self._clients.consumer_groups():
            group = self._clients.consumer_group(name)
            if group is not None:
                mode = MODES.get(group.consume_type, OTHER)
                labels = {"consumer_group": name, "consume_mode": mode, "is_system": flag_text(_is_system_group(name))}
                consumers |= self._counted(labels, group.clients.values())
                if len(consumers) >= self._got.count_max:
                    break
        self.consumers = consumers

    def _counted(self, labels: dict[str, str], clients: Iterable[ClientInfo[Any]]) -> Lines:
        """Return the number of clients of each kind."""
        kinds = Counter((client.language, client.version) for client in clients)
        lines: Counter[str] = Counter()
        for (language, version), count in kinds.most_common():
            code = LanguageCode(language) if language in _LANGUAGES else LanguageCode.OTHER
            kind = (code.name.lower(), version_name(version).lower()) if len(lines) < KINDS_MAX else (OTHER, OTHER)
            names = {"language": kind[0], "version": kind[1], "protocol_type": "remoting"}
            lines[label_text({**self.node, **labels, **names})] += count
        return lines

    def _got_text(self, key: str) -> str:
        topic, _, group = key.partition("@")
        flag = flag_text(is_system_topic(topic) or _is_system_group(group))
        return label_text({**self.node, "topic": topic, "consumer_group": group, "is_system": flag})


def _is_system_group(group: str) -> bool:
    """Return what RocketMQ's metrics call a system group (MixAll.isSysConsumerGroup)."""
    return group.startswith("CID_RMQ_SYS_")


def _summed(lines: Iterable[tuple[str, int]]) -> Lines:
    """Return the lines with those of one text added up."""
    sums: Counter[str] = Counter()
    for text, value in lines:
        sums[text] += value
    return sums
