"""A broker's report on its last minute: JSON, the value of ``pocketmqTelemetry`` in its runtime info (code 28).

Lives here: the structs, their encoding and decoding. Every field has a default and unknown ones are skipped, so that
nodes and tools of different versions understand each other.
"""

from typing import Final

import msgspec

from pocketmq.common.errors import DECODE_ERRORS, BytesIllegal

TELEMETRY_KEY: Final = "pocketmqTelemetry"
"""Key of the snapshot in the table of GET_BROKER_RUNTIME_INFO."""
ALL_PAIRS: Final = "all"
"""``StageTelemetry.pair`` of stages that are counted for all pairs together: ``read`` and ``write``."""


class TelemetryUnreadable(BytesIllegal):
    """A broker's telemetry is not JSON of this form."""


class PairTelemetry(msgspec.Struct, frozen=True, kw_only=True):
    """One processor's queue. Counts are since the broker's start, sizes are of this moment.

    ``max_wait_ms`` 0: no limit. ``swept``: answered by fast failure. ``drain_limit``: the most requests that a worker
    takes at once now.
    """

    name: str = ""
    queue_size: int = 0
    queue_capacity: int = 0
    queue_bytes: int = 0
    queue_bytes_max: int = 0
    head_wait_ms: int = 0
    max_wait_ms: int = 0
    served: int = 0
    refused_full: int = 0
    swept: int = 0
    drain_limit: int = 0
    drains: int = 0


class StageTelemetry(msgspec.Struct, frozen=True, kw_only=True):
    """How long requests of a pair were in one stage (``broker.stats.stage_times.Stage``), in the window."""

    pair: str = ""
    stage: str = ""
    count: int = 0
    p50_us: float = 0.0
    p99_us: float = 0.0
    p999_us: float = 0.0
    max_us: float = 0.0
    sum_us: float = 0.0


class RefusalCount(msgspec.Struct, frozen=True, kw_only=True):
    """Refusals of one cause since the start. ``last_ms``: wall time of the latest one, 0 if none."""

    cause: str = ""
    code: int = 0
    remark: str = ""
    total: int = 0
    last_minute: int = 0
    last_ms: int = 0


class RefusedRequestCount(msgspec.Struct, frozen=True, kw_only=True):
    """Refused requests of one kind since the start; the texts are those of the latest.

    ``request``: RocketMQ's name of its code, or ``unknown``; ``version``: RocketMQ's name or number of the version that
    the client announces, or ``other``. ``last_ms``: wall time.
    """

    request: str = ""
    code: int = 0
    cause: str = ""
    language: str = ""
    version: str = ""
    remark: str = ""
    remote: str = ""
    client_id: str = ""
    group: str = ""
    total: int = 0
    last_minute: int = 0
    last_ms: int = 0


class PageCacheTelemetry(msgspec.Struct, frozen=True, kw_only=True):
    """The append lock. ``busy_episodes``: times since the start that ``busy`` was seen to become true."""

    busy: bool = False
    lock_held_ms: int = 0
    longest_hold_ms_last_minute: int = 0
    busy_episodes: int = 0
    timeout_ms: int = 0


class PoolTelemetry(msgspec.Struct, frozen=True, kw_only=True):
    """The write-buffer pool (transient store pool)."""

    size: int = 0
    available: int = 0
    locked: bool = False
    deficient: bool = False
    uncommitted_bytes: int = 0
    survives: bool = False
    """The buffers outlive the process."""
    cannot_stall: bool = False
    """They also are in memory and locked: no disk can hold an append back."""


class FlushTelemetry(msgspec.Struct, frozen=True, kw_only=True):
    """Syncs of the commit log in the window. ``mode``: ASYNC_FLUSH or SYNC_FLUSH; ``behind_bytes``: not durable yet.

    ``running_ms``: how long the sync under way has taken so far; 0: none is.
    """

    mode: str = ""
    count: int = 0
    p50_us: float = 0.0
    p99_us: float = 0.0
    max_us: float = 0.0
    running_ms: int = 0
    behind_bytes: int = 0
    fenced: bool = False


class BucketCount(msgspec.Struct, frozen=True, kw_only=True):
    """Puts of the window in one of RocketMQ's 13 buckets."""

    label: str = ""
    count: int = 0


class SlowRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One slow request; ``stages`` in ms by name. ``at_ms``: wall time of its answer."""

    at_ms: int = 0
    code: int = 0
    pair: str = ""
    remote: str = ""
    total_ms: float = 0.0
    slowest_stage: str = ""
    stages: dict[str, float] = msgspec.field(default_factory=dict)


class CertificateTelemetry(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate in use; ``setting`` names its file, ``not_after_ms`` is wall time."""

    setting: str = ""
    subject: str = ""
    not_after_ms: int = 0


class SecurityTelemetry(msgspec.Struct, frozen=True, kw_only=True):
    """Who may connect, and what protects it. No name and no secret of a user."""

    authentication: bool = False
    authorization: bool = False
    tls_mode: str = "disabled"
    open_binds: list[str] = msgspec.field(default_factory=list)
    """Settings, as ``name=address``, with which other machines connect and nobody has to authenticate."""
    users: int = 0
    weak_secrets: dict[str, int] = msgspec.field(default_factory=dict)
    """Why → users whose secret is easily guessed."""
    auth_file_mode: int = 0
    """Permissions of others on the file of users and policies, as it was last looked at; 0: none, or there is none."""
    certificates: list[CertificateTelemetry] = msgspec.field(default_factory=list)


class TelemetrySnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All figures of one moment. ``window_s``: seconds that windowed statistics cover, up to 60."""

    window_s: float = 0.0
    pairs: list[PairTelemetry] = msgspec.field(default_factory=list)
    stages: list[StageTelemetry] = msgspec.field(default_factory=list)
    refusals: list[RefusalCount] = msgspec.field(default_factory=list)
    refused_requests: list[RefusedRequestCount] = msgspec.field(default_factory=list)
    page_cache: PageCacheTelemetry = msgspec.field(default_factory=PageCacheTelemetry)
    pool: PoolTelemetry | None = None
    flush: FlushTelemetry = msgspec.field(default_factory=FlushTelemetry)
    put_times: list[BucketCount] = msgspec.field(default_factory=list)
    slowest: list[SlowRequest] = msgspec.field(default_factory=list)
    security: SecurityTelemetry | None = None


def encode_telemetry(snapshot: TelemetrySnapshot) -> str:
    """Return ``snapshot`` as JSON text."""
    return msgspec.json.encode(snapshot).decode()


def decode_telemetry(text: str) -> TelemetrySnapshot:
    """Return the snapshot in ``text``; raise ``TelemetryUnreadable``."""
    try:
        return msgspec.json.decode(text, type=TelemetrySnapshot)
    except DECODE_ERRORS as error:
        raise TelemetryUnreadable("the broker's telemetry cannot be read", why=str(error)) from error
