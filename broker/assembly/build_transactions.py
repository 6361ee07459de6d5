"""Build the parts of transactions and connect them.

Lives here: ``TransactionServices``, ``build_transactions``.
"""

from dataclasses import dataclass

from pocketmq.broker.admin.transaction_admin import TransactionAdmin
from pocketmq.broker.assembly.environment import BrokerEnvironment
from pocketmq.broker.delay.target_topics import TargetTopics
from pocketmq.broker.group.client_table import ClientTable
from pocketmq.broker.ha.replication import Replication
from pocketmq.broker.metrics.sources import Transactions
from pocketmq.broker.request.request_task import AnswerPort
from pocketmq.broker.transaction.end_transaction_processor import EndTransactionProcessor
from pocketmq.broker.transaction.transaction_service import ProducerPort, TransactionService
from pocketmq.broker.transaction.transaction_table import TransactionTable
from pocketmq.broker.transaction.transaction_writer import TransactionWriter
from pocketmq.remoting.server import Connection
from pocketmq.store.message_store import MessageStore


@dataclass(slots=True, frozen=True)
class TransactionServices:
    """``service`` is None on brokers that check no half messages: a slave, and a master that was replaced."""

    table: TransactionTable
    admin: TransactionAdmin
    end: EndTransactionProcessor
    service: TransactionService | None

    def sources(self) -> Transactions | None:
        """Return the sources of metrics."""
        return None if self.service is None else Transactions(self.service, self.end)


def build_transactions(
    environment: BrokerEnvironment,
    store: MessageStore,
    clients: ClientTable[Connection],
    replication: Replication,
    answers: AnswerPort,
) -> TransactionServices:
    """Build the parts without opening or starting them."""
    config, clock, node = environment.config, environment.clock, replication.node
    transaction_log = environment.logger("transaction")
    transactions = TransactionTable(config.transaction_pending_max, clients.has_producer)
    transaction_writer = TransactionWriter(store, transactions, environment.counters, clock)
    transaction_admin = TransactionAdmin(store, transactions, transaction_writer, transaction_log)
    end_transaction = EndTransactionProcessor(
        store, transactions, transaction_writer, answers, environment.refusals, transaction_log, node.refusal
    )
    transaction_service: TransactionService | None = None
    if not replication.role.is_slave and node.fenced_by is None:
        transaction_service = TransactionService(
            config,
            store,
            transactions,
            transaction_writer,
            ProducerPort(clients, environment.mailbox, environment.auth.guard),
            environment.offsets,
            environment.file_system,
            clock,
            transaction_log,
            is_held=node.must_not_write,
            need=TargetTopics(environment.topics, store, transaction_log, "open transactions").need,
        )
    return TransactionServices(transactions, transaction_admin, end_transaction, transaction_service)
