"""What a dashboard is given: the cluster, what its visitors may do, and the parts that belong to the command line.

Lives here: ``DashboardOptions``, ``DoctorFinding``, ``ScenarioInfo``.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pocketmq.common.events import EventLog, NullLog
from pocketmq.remoting.security.client_security import TLSArgument
from pocketmq.remoting.security.credentials import Credentials

if TYPE_CHECKING:
    from pocketmq.client.admin.admin import Admin

INTERVAL_S: Final = 3.0
"""Time between two looks at a cluster that somebody watches."""


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One finding. ``severity``: ``error``, ``warning`` or ``note``; ``evidence``: values with their units."""

    broker: str
    severity: str
    title: str
    evidence: tuple[str, ...]
    cause: str
    cure: str
    reference: str = ""


Doctor = Callable[["Admin", Credentials | None], Awaitable[Sequence[DoctorFinding]]]
"""Checks the cluster of an admin, with the rights of these credentials."""


@dataclass(frozen=True, slots=True)
class ScenarioInfo:
    """One incident that can be played."""

    name: str
    incident: str
    question: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardOptions:
    """How a dashboard works.

    ``credentials``: act as this user for every visitor; None: without a user, or as the visitor who has logged in.
    ``login``: every visitor has to log in; without it the dashboard asks for a log-in where the cluster does.
    ``hosts``: names that a request's Host header may have, beside ``localhost`` and addresses.
    ``scenario_command``: the start of the command line that plays an incident; empty: none can be played.
    """

    namesrv: str
    credentials: Credentials | None = None
    tls: TLSArgument = None
    allow_writes: bool = False
    login: bool = False
    hosts: tuple[str, ...] = ()
    https: bool = False
    hide_bodies: bool = False
    interval_s: float = INTERVAL_S
    doctor: Doctor | None = None
    scenarios: tuple[ScenarioInfo, ...] = ()
    scenario_command: tuple[str, ...] = ()
    log: EventLog = field(default_factory=NullLog)
