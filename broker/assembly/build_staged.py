"""Build the parts of staged transactions and connect them.

Lives here: ``StagedParts``, ``build_staged``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from pocketmq.broker.assembly.environment import BrokerEnvironment
from pocketmq.broker.ha.replication import Replication
from pocketmq.broker.request.request_task import AnswerPort
from pocketmq.broker.send.native_append import NativeAppend
from pocketmq.broker.send.send_checks import SendChecks
from pocketmq.broker.staged.id_owners import IdOwners
from pocketmq.broker.staged.staged_log import StagedLog
from pocketmq.broker.staged.staged_processor import StagedProcessor
from pocketmq.broker.staged.staged_records import Sections
from pocketmq.broker.staged.staged_service import StagedService
from pocketmq.common.errors import MessageIllegal
from pocketmq.common.plain_check import PlainChecker, PlainRules, check_plain
from pocketmq.common.record_columns import Bytes
from pocketmq.common.record_group import RecordGroup, sections_of
from pocketmq.common.topics import TOPIC_ID_ATTRIBUTE
from pocketmq.store.message_store import MessageStore


@dataclass(slots=True, frozen=True)
class StagedParts:
    """``service`` is None on a slave, and on a master that was replaced: they refuse such requests."""

    processor: StagedProcessor
    service: StagedService | None


def build_staged(
    environment: BrokerEnvironment,
    store: MessageStore,
    rules: PlainRules,
    replication: Replication,
    answers: AnswerPort,
    persist_topics: Callable[[], object],
) -> StagedParts:
    """Build the parts without opening or starting them."""
    config, clock, node = environment.config, environment.clock, replication.node
    log = environment.logger("transaction")

    def has_topic(topic: str) -> bool:
        return environment.topics.get(topic) is not None

    def topic_home(topic: str) -> tuple[str, int] | None:
        known = environment.topics.get(topic)
        if known is None:
            return None
        return (known.attributes or {}).get(TOPIC_ID_ATTRIBUTE, ""), max(known.write_queue_nums, known.read_queue_nums)

    checker = PlainChecker(rules)

    def make(buffer: Bytes, sizes: NDArray[Any], sections: Sections) -> RecordGroup | None:
        """Build the group as at the send: the records were checked then, but under the address family of that time."""
        try:
            checked = check_plain(buffer, sizes, sections_of(sections), checker)
        except MessageIllegal:
            return None
        return None if any(checked.errors) else checked.group

    staged_log = StagedLog(store, environment.counters, clock, log, has_topic, make)
    service: StagedService | None = None
    if not replication.role.is_slave and node.fenced_by is None:
        service = StagedService(config, store, staged_log, clock, log, is_held=node.must_not_write)
    checks = SendChecks(config, environment.topics)
    processor = StagedProcessor(
        config,
        store,
        staged_log,
        service,
        NativeAppend(rules, checks),
        checks,
        topic_home,
        persist_topics,
        answers,
        environment.refusals,
        node.refusal,
        IdOwners(environment.auth.guard),
    )
    return StagedParts(processor, service)
