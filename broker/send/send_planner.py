"""From drained requests to groups of records: the part of a send before the store.

Lives here: ``SendPlanner``: runs of native and RocketMQ sends in the order of the drain, refusals of bad requests,
groups no larger than the store takes.
"""

from dataclasses import dataclass

from pocketmq.broker.flow_control.busy_answers import QUEUE_WAIT
from pocketmq.broker.flow_control.refusal_stats import RefusalStats
from pocketmq.broker.request.request_task import Drain, Refusal, Task, refusal_of
from pocketmq.broker.send.native_append import NativeAppend, NativeSend
from pocketmq.broker.send.native_half import NativeHalves
from pocketmq.broker.send.recall import Recalls
from pocketmq.broker.send.rocketmq_send import NotStored, RocketMQSend, RocketMQSends
from pocketmq.broker.send.send_back import SendBacks
from pocketmq.broker.send.send_batch import SendBatch
from pocketmq.broker.send.send_checks import SendChecks
from pocketmq.common.errors import PocketMQError, Stored
from pocketmq.remoting.codes import RequestCode


@dataclass(slots=True, eq=False)
class SendPlanner:
    """Turns a drain into batches, grouped by append. It has caches, so it belongs to one thread at a time."""

    native: NativeAppend
    rocketmq: RocketMQSends
    halves: NativeHalves
    checks: SendChecks
    """Those that ``native``, ``rocketmq`` and ``send_backs`` use."""
    group_bytes_max: int
    refusals: RefusalStats
    send_backs: SendBacks
    recalls: Recalls

    def plan(self, drain: Drain, started_ns: int) -> list[list[SendBatch]]:
        """Return the batches in order, joined up to the largest group the store takes.

        Requests without one good record are answered here. ``started_ns``: when the drain began.
        """
        appends: list[list[SendBatch]] = []
        size_bytes = self.group_bytes_max + 1
        for batch in self._batches(drain, started_ns):
            size_bytes += batch.group.size_bytes
            if size_bytes > self.group_bytes_max:
                appends.append([])
                size_bytes = batch.group.size_bytes
            appends[-1].append(batch)
        return appends

    def _batches(self, drain: Drain, started_ns: int) -> list[SendBatch]:
        """Return runs of native and of RocketMQ sends, each checked and made a group, in the order of the drain.

        A run ends where the kind changes, or before it exceeds the largest group the store takes.
        """
        batches: list[SendBatch] = []
        native_run: list[NativeSend] = []
        rocketmq_run: list[RocketMQSend] = []
        run_bytes = 0

        def end_run() -> None:
            if native_run:
                batch = self.native.check(list(native_run), drain)
                if batch is not None and native_run[0].half:
                    batch = self.halves.convert(batch, drain)
                if batch is not None:
                    batches.append(batch)
                for send in native_run:
                    if send.verdicts:  # even if other sections of the frame are good
                        for refusal in send.kinds_refused():
                            self.refusals.note(refusal.cause.value, refusal.code, refusal.remark)
                native_run.clear()
            if rocketmq_run:
                batches.append(self.rocketmq.check(list(rocketmq_run)))
                rocketmq_run.clear()

        for task in drain.tasks:
            code = task.request.code
            is_native = code == RequestCode.NATIVE_APPEND or code == RequestCode.NATIVE_HALF_APPEND
            try:
                send = self._plan_native(task) if is_native else self._plan_rocketmq(task)
            except NotStored as error:
                self._refuse(drain, task, error.refusal, started_ns)
                continue
            except PocketMQError as error:
                self._refuse(drain, task, refusal_of(error, Stored.NO), started_ns)
                continue
            run_bytes += send.size_bytes
            if (
                run_bytes > self.group_bytes_max
                or (rocketmq_run if is_native else native_run)
                or (native_run and isinstance(send, NativeSend) and native_run[0].half != send.half)
            ):
                end_run()
                run_bytes = send.size_bytes
            if isinstance(send, NativeSend):
                native_run.append(send)
            else:
                rocketmq_run.append(send)
        end_run()
        return batches

    def _plan_native(self, task: Task) -> NativeSend:
        send = self.native.plan(task)
        if send.half:
            refusal = self.halves.refusal(send)
            if refusal is not None:
                raise NotStored(refusal)
        return send

    def _plan_rocketmq(self, task: Task) -> RocketMQSend:
        if task.request.code == RequestCode.RECALL_MESSAGE:
            return self.recalls.plan(task)
        if task.request.code == RequestCode.CONSUMER_SEND_MSG_BACK:  # it shares the queue and the refusals of sends
            return self.send_backs.plan(task)
        return self.rocketmq.plan(task)

    def _refuse(self, drain: Drain, task: Task, refusal: Refusal, started_ns: int) -> None:
        self.refusals.note(refusal.cause.value, refusal.code, refusal.remark)
        drain.refuse(task, refusal.with_stages(((QUEUE_WAIT, started_ns - task.created_ns),)))
