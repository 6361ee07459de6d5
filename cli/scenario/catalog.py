"""The list of scenarios.

Lives here: ``CATALOG``: names, incidents and questions, so that ``list`` and ``--help`` load nothing heavy; ``find``.
"""

import importlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pocketmq.cli.scenario.knobs import DISK, LOAD, Knobs

if TYPE_CHECKING:
    from pocketmq.cli.scenario.harness.cluster import Cluster
    from pocketmq.cli.scenario.report.report import Phase

Run = Callable[["Cluster", bool, Callable[[str], None], Knobs], Awaitable[list["Phase"]]]
"""(cluster, quick, progress, knobs) → phases."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One incident that ``pocketmq scenario`` provokes."""

    name: str
    incident: str
    question: str
    has_full: bool = False
    """Its times are scaled down unless ``--full`` is given."""
    knobs: tuple[str, ...] = LOAD
    """What a reader may change (``knobs.KNOBS``)."""
    can_hold: bool = True
    """Its incident lasts until it is repaired, so ``--hold`` can leave it running."""

    def plans(self, quick: bool, knobs: Knobs) -> list[Any]:
        """Return the plans of its runs."""
        found: list[Any] = self._module().plans(quick, knobs)
        return found

    def _module(self) -> Any:
        return importlib.import_module(f"pocketmq.cli.scenario.incidents.{self.name.replace('-', '_')}")

    def load(self, *, full: bool = False) -> tuple[Run, str, str]:
        """Return the function that runs it, its cure, and the cure's price.

        A module has ``plans``, which run one after the other, or its own ``run``.
        """
        module = self._module()
        run: Run = module.run_full if full else getattr(module, "run", None) or partial(_run_plans, module.plans)
        return run, module.CURE, module.PRICE


CATALOG: Final[tuple[Scenario, ...]] = (
    Scenario(
        "timeout-clean-queue",
        "[TIMEOUT_CLEAN_QUEUE]broker busy: sends queue up behind appends of 100 ms",
        "What happens to 2,000 waiting sends whose clients give up after 3 s?",
        knobs=("append_ms", "burst", *DISK),
    ),
    Scenario(
        "pcbusy",
        "[PCBUSY_CLEAN_QUEUE] and [REJECTREQUEST]: an append stalls for more than a second",
        "What helps when the page cache stalls an append, and what only hides it?",
        knobs=("stall_ms", *DISK),
    ),
    Scenario(
        "pc-synchronized",
        "[PC_SYNCHRONIZED]broker busy: a put waits for an append lock that another thread holds",
        "What does the second of two send threads answer while the first is stuck?",
        knobs=("stall_ms", *DISK),
    ),
    Scenario(
        "reject-request",
        "[REJECTREQUEST]system busy: refused at admission",
        "Which two causes does the same text have?",
        knobs=("stall_ms", *DISK),
    ),
    Scenario(
        "too-many-requests",
        "[OVERLOAD]system busy: too many requests and system thread pool busy, RejectedExecutionException",
        "Does a longer send queue help?",
        knobs=("append_ms", "burst", *DISK),
    ),
    Scenario(
        "retry-codes",
        "MQBrokerException CODE: 2 although another broker is healthy",
        "Why does a client not try the other broker when one answers that it is busy?",
        knobs=("append_ms", *DISK),
    ),
    Scenario(
        "pool-loss",
        "messages lost although SEND_OK was answered: the price of the write-buffer pool",
        "What does kill -9 lose with the pool, and what without?",
        knobs=("append_ms", *DISK),
        can_hold=False,
    ),
    Scenario(
        "ordered-lock-stuck",
        "an ordered queue stands still for a minute: message queue locked by other client",
        "Which client has the lock of a queue whose consumer was killed, and what frees it sooner?",
        has_full=True,
        knobs=("lock_ms",),
        can_hold=False,
    ),
    Scenario(
        "slave-readonly",
        "sends time out on a synchronous master although it is well: its slave's disk refuses writes",
        "Why do sends with a timeout of 30 s fail, and which answer should they get?",
        knobs=("probes", "slave_timeout_ms", *LOAD),
    ),
    Scenario(
        "slave-killed",
        "SLAVE_NOT_AVAILABLE: the slave of a synchronous master is gone",
        "What do senders notice when a slave dies, and when there is a second one?",
    ),
    Scenario(
        "slave-frozen",
        "FLUSH_SLAVE_TIMEOUT: the slave of a synchronous master stands still with open connections",
        "How long does a silent slave delay each send?",
        knobs=("slave_timeout_ms", *LOAD),
    ),
    Scenario(
        "network-cut",
        "acknowledged messages are gone after a promotion: the network between master and slave was cut before",
        "What is lost when the master's machine fails during a cut between master and slave?",
    ),
)


async def _run_plans(
    plans: Callable[[bool, Knobs], list[Any]],
    cluster: "Cluster",
    quick: bool,
    progress: Callable[[str], None],
    knobs: Knobs,
) -> list["Phase"]:
    from pocketmq.cli.scenario.harness.phase import run_plans
    from pocketmq.cli.scenario.harness.replicas import GroupPlan, run_groups

    chosen = plans(quick, knobs)
    run = run_groups if isinstance(chosen[0], GroupPlan) else run_plans
    return await run(cluster, chosen, progress)


def find(name: str) -> Scenario | None:
    """Return the scenario of that name."""
    return next((scenario for scenario in CATALOG if scenario.name == name), None)
