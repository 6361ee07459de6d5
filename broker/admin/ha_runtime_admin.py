"""The state of replication for RocketMQ 5.3's admin tools.

Lives here: ``ha_runtime``, handlers of GET_BROKER_HA_STATUS and GET_BROKER_EPOCH_CACHE, from the node's own status.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pocketmq.broker.ha.ha_node import HaNode
from pocketmq.broker.ha.ha_roles import SLAVE
from pocketmq.broker.request.default_processor import Handler
from pocketmq.broker.request.request_task import Buffers, Task, encode_answer
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.body import encode_body
from pocketmq.remoting.protocol.ha import (
    EpochCacheBody,
    EpochEntryBody,
    HaClientBody,
    HaConnectionBody,
    HaRuntimeBody,
    HaStatusBody,
)


@dataclass(slots=True, eq=False)
class HaRuntimeAdmin:
    """Handlers that only read. Admin worker thread."""

    node: HaNode

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handler of each code."""
        return {
            RequestCode.GET_BROKER_HA_STATUS: self._ha_status,
            RequestCode.GET_BROKER_EPOCH_CACHE: self._epochs,
        }

    def _ha_status(self, task: Task) -> Buffers:
        return encode_answer(task.request, body=encode_body(ha_runtime(self.node.status())))

    def _epochs(self, task: Task) -> Buffers:
        """Answer also without RocketMQ's controller mode: a PocketMQ log always has its epochs."""
        status = self.node.status()
        ends = [*(each.start_offset for each in status.epochs[1:]), status.end_offset]
        body = EpochCacheBody(
            cluster_name=status.cluster,
            broker_name=status.broker_name,
            broker_id=status.broker_id,
            epoch_list=[
                EpochEntryBody(each.number, each.start_offset, end)
                for each, end in zip(status.epochs, ends, strict=False)
            ],
            max_offset=status.end_offset,
        )
        return encode_answer(task.request, body=encode_body(body))


def ha_runtime(status: HaStatusBody) -> HaRuntimeBody:
    """Return a node's state for RocketMQ's haStatus."""
    return _of_slave(status) if status.role == SLAVE else _of_master(status)


def _of_master(status: HaStatusBody) -> HaRuntimeBody:
    """``transfer_from_where`` is the acknowledged offset; the rate is that of the whole connection."""
    return HaRuntimeBody(
        master=True,
        master_commit_log_max_offset=status.end_offset,
        in_sync_slave_nums=sum(slave.is_in_sync for slave in status.slaves),
        ha_connection_info=[
            HaConnectionBody(
                addr=slave.address,
                slave_ack_offset=slave.ack_offset,
                diff=slave.behind_bytes,
                in_sync=slave.is_in_sync,
                transferred_byte_in_second=slave.sent_bytes * 1000 // max(1, slave.connected_ms),
                transfer_from_where=slave.ack_offset,
            )
            for slave in status.slaves
        ],
    )


def _of_slave(status: HaStatusBody) -> HaRuntimeBody:
    """0 for values that a slave does not know: its last read, its rate, the flushed offset of its master."""
    return HaRuntimeBody(
        master=False,
        ha_client_runtime_info=HaClientBody(
            master_addr=status.master_address,
            max_offset=status.end_offset,
            activated=status.is_connected,
        ),
    )
