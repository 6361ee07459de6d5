"""The doctor's core: every rule reports exactly when it should, and no snapshot makes it raise."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pocketmq.cli import doctor
from pocketmq.cli.doctor.broker_metrics import SECTIONS, BrokerMetrics, BrokerSettings
from pocketmq.cli.doctor.diagnosis import diagnose, examine
from pocketmq.cli.doctor.finding import Area, Light, Severity
from pocketmq.cli.scenario.catalog import CATALOG
from pocketmq.remoting.telemetry import (
    FlushTelemetry,
    PageCacheTelemetry,
    PoolTelemetry,
    SecurityTelemetry,
    SlowRequest,
)
from tests.cli.doctor.snapshots import (
    found_by,
    keys,
    pair,
    refusal,
    refused_request,
    settings,
    snapshot,
    stage,
    telemetry,
    the,
)


def test_a_healthy_broker_has_no_findings_and_green_lights_with_values() -> None:
    """Every area names the value checked and its distance from the limit."""
    diagnosis = examine(snapshot(telemetry()), BrokerSettings(settings()))
    assert diagnosis.findings == ()
    assert {line.area: line.light for line in diagnosis.areas} == dict.fromkeys(Area, Light.GREEN)
    texts = {line.area: line.text for line in diagnosis.areas}
    assert "0 of 10,000 requests wait" in texts[Area.SEND_QUEUE]
    assert "of 200 ms" in texts[Area.SEND_QUEUE]
    assert "3.0 ms of 1.00 s" in texts[Area.PAGE_CACHE]
    assert diagnosis.missing == ()


def test_without_sends_the_append_has_no_data() -> None:
    """The line says that there were no sends, and does not show a quick append."""
    told = msgspec.structs.replace(telemetry(), stages=[])
    line = next(line for line in examine(snapshot(told), BrokerSettings({})).areas if line.area is Area.APPEND)
    assert line.text == "no data (no sends in the last 60 s)"


def test_a_bad_setting_stands_before_mere_slowness_of_an_earlier_area() -> None:
    """All are warnings: one is certain, one may be due to other work on the machine, and a network that is open on
    purpose explains nothing of both.
    """
    told = telemetry(
        stages=[stage("append", p99=100.0, longest=160.0)], security=SecurityTelemetry(open_binds=["0.0.0.0:10911"])
    )
    found = diagnose(snapshot(told), settings(os_page_cache_busy_timeout_mills="60000"))
    assert [each.key for each in found if each.severity is Severity.WARNING] == [
        "bad-cure-page-cache-timeout",
        "append-slow",
        "open-bind",
    ]


@pytest.mark.parametrize(
    ("cause", "remark", "key", "area", "scenario"),
    [
        (
            "page_cache_busy",
            "[REJECTREQUEST]system busy, start flow control for a while",
            "refused-page-cache-reject",
            Area.ADMISSION,
            "reject-request",
        ),
        ("page_cache_busy", "[PCBUSY_CLEAN_QUEUE]broker busy", "refused-page-cache-sweep", Area.PAGE_CACHE, "pcbusy"),
        ("page_cache_busy", "[PC_SYNCHRONIZED]broker busy", "refused-page-cache-put", Area.PAGE_CACHE, "pc-synchr"),
        ("no_write_buffer", "[REJECTREQUEST]system busy", "refused-no-buffer", Area.POOL, "reject-request"),
        ("queue_full", "[OVERLOAD]system busy", "refused-queue-full", Area.SEND_QUEUE, "too-many-requests"),
        ("queue_timeout", "[TIMEOUT_CLEAN_QUEUE]broker busy", "refused-timeout", Area.SEND_QUEUE, "timeout-clean"),
    ],
)
def test_each_refusal_of_flow_control_has_a_finding_of_its_own(
    cause: str, remark: str, key: str, area: Area, scenario: str
) -> None:
    """All five, with their counts, the last text and the scenario, and the hint about old clients."""
    found = diagnose(snapshot(telemetry(refusals=[refusal(cause, remark)])), settings())
    assert keys(found) == {key, "old-clients-do-not-retry"}
    finding = the(found, key)
    assert (finding.severity, finding.area) == (Severity.ERROR, area)
    assert "10 requests refused in the last 60 s, 50 since the start, code 2" in finding.evidence[0]
    assert remark in finding.evidence[0]
    assert scenario in finding.reference
    assert finding.cause
    assert finding.cure


def test_every_scenario_that_a_finding_points_to_exists() -> None:
    """In a broker with every fault at once, each reference is a command that runs."""
    causes = ("page_cache_busy", "queue_timeout", "queue_full", "no_write_buffer", "disk_full")
    tags = ("[REJECTREQUEST]x", "[PCBUSY_CLEAN_QUEUE]x", "[PC_SYNCHRONIZED]x", "[TIMEOUT_CLEAN_QUEUE]x", "x")
    told = telemetry(
        refusals=[refusal(cause, tag) for cause in causes for tag in tags],
        pool=PoolTelemetry(size=2, deficient=True),
        page_cache=PageCacheTelemetry(busy=True, lock_held_ms=2000),
        stages=[stage("append", p99=500.0)],
    )
    bad = settings(
        osPageCacheBusyTimeOutMills="5000",
        brokerFastFailureEnable="false",
        sendThreadPoolQueueCapacity="50000",
        waitTimeMillsInSendQueue="1000",
        sendDrainMax="1",
    )
    found = diagnose(snapshot(told), bad)
    assert len(found) > 12
    named = {finding.reference for finding in found} - {""}
    assert named <= {f"pocketmq scenario {scenario.name}" for scenario in CATALOG}
    assert len(named) > 5


def test_three_ways_of_a_busy_page_cache_are_three_findings() -> None:
    """They share their cause and differ by tag."""
    tags = ("[REJECTREQUEST]x", "[PCBUSY_CLEAN_QUEUE]x", "[PC_SYNCHRONIZED]x")
    found = found_by(telemetry(refusals=[refusal("page_cache_busy", tag) for tag in tags]))
    assert {key for key in found if key.startswith("refused")} == {
        "refused-page-cache-reject",
        "refused-page-cache-sweep",
        "refused-page-cache-put",
    }


def test_refusals_before_the_window_are_no_finding() -> None:
    """An earlier refusal is in the total of the admission line; it is not a current error."""
    told = telemetry(refusals=[refusal("queue_timeout", "[TIMEOUT_CLEAN_QUEUE]x", last_minute=0)])
    diagnosis = examine(snapshot(told), BrokerSettings(settings()))
    assert diagnosis.findings == ()
    assert "nothing refused in the last 60 s, 50 since the start" in diagnosis.areas[0].text


@pytest.mark.parametrize(
    ("cause", "key", "severity"),
    [
        ("disk_full", "refused-disk-full", Severity.ERROR),
        ("read_only", "refused-read-only", Severity.ERROR),
        ("disk_error", "refused-disk-error", Severity.ERROR),
        ("fenced", "refused-fenced", Severity.ERROR),
        ("memory_limit", "refused-memory-limit", Severity.ERROR),
        ("connection_limit", "refused-connection-limit", Severity.ERROR),
        ("not_master", "refused-not-master", Severity.ERROR),
        ("shutting_down", "refused-shutting-down", Severity.WARNING),
        ("bad_request", "refused-bad-request", Severity.NOTE),
        ("no_permission", "refused-no-permission", Severity.NOTE),
        ("a_cause_of_tomorrow", "refused-a-cause-of-tomorrow", Severity.ERROR),
    ],
)
def test_failed_puts_are_reported_with_their_cause(cause: str, key: str, severity: Severity) -> None:
    """Every other cause appears too, also one that this version does not know."""
    found = diagnose(snapshot(telemetry(refusals=[refusal(cause, "text", code=14)])), settings())
    assert [(finding.key, finding.severity) for finding in found] == [(key, severity)]


def test_old_clients_are_mentioned_only_for_code_2() -> None:
    """Code 1 and 14 are in the retry set of old clients."""
    told = telemetry(refusals=[refusal("page_cache_busy", "[PC_SYNCHRONIZED]x", code=1)])
    assert found_by(told) == {"refused-page-cache-put"}


@pytest.mark.parametrize(
    ("stages", "words", "setting"),
    [
        ([stage("append", p99=20.0)], "append itself is slow", "store.transient_store_pool_enable"),
        ([stage("append", p99=5.0, longest=200.0)], "append itself is slow", "store.transient_store_pool_enable"),
        ([stage("lock_wait", p99=300.0)], "wait for one another", "broker.send_message_thread_pool_nums"),
        ([stage("process", p99=50.0)], "checks of the requests", ""),
        ([stage("append", p99=19.9, longest=199.0)], "more requests arrive", ""),
    ],
)
def test_a_queue_timeout_names_the_slow_stage(stages: list[object], words: str, setting: str) -> None:
    """Append, lock or checks from 20 ms at p99 or the wait limit on; otherwise load above capacity."""
    told = telemetry(refusals=[refusal("queue_timeout", "[TIMEOUT_CLEAN_QUEUE]x")], stages=stages)
    finding = the(diagnose(snapshot(told), settings(sendMessageThreadPoolNums="2")), "refused-timeout")
    assert words in finding.cause
    assert [advice.name for advice in finding.settings] == ([setting] if setting else [])


def test_a_stall_that_has_not_ended_is_seen_by_the_lock() -> None:
    """The hanging append is not in the histogram yet; the time for which its lock is held is."""
    told = telemetry(
        refusals=[refusal("queue_timeout", "[TIMEOUT_CLEAN_QUEUE]x")],
        page_cache=PageCacheTelemetry(lock_held_ms=700, timeout_ms=1000),
    )
    finding = the(diagnose(snapshot(msgspec.structs.replace(told, stages=[])), settings()), "refused-timeout")
    assert "append itself is slow" in finding.cause
    assert "an append has held the append lock for 700 ms so far" in finding.evidence


def test_without_stage_times_no_stage_is_guessed() -> None:
    """A timeout alone does not show which stage is slow."""
    told = msgspec.structs.replace(telemetry(refusals=[refusal("queue_timeout", "[TIMEOUT_CLEAN_QUEUE]x")]), stages=[])
    finding = the(diagnose(snapshot(told), settings()), "refused-timeout")
    assert "no data" in finding.cause
    assert finding.settings == ()


def test_a_slow_append_with_the_pool_on_is_not_cured_by_the_pool() -> None:
    """The advice to enable the pool would be nonsense then."""
    told = telemetry(
        refusals=[refusal("queue_timeout", "[TIMEOUT_CLEAN_QUEUE]x"), refusal("page_cache_busy", "[REJECTREQUEST]x")],
        stages=[stage("append", p99=500.0)],
        pool=PoolTelemetry(size=5, available=5, locked=True),
    )
    found = diagnose(snapshot(told), settings(transientStorePoolEnable="true"))
    named = {advice.name for finding in found for advice in finding.settings}
    assert "store.transient_store_pool_enable" not in named


def test_rocketmqs_pace_is_the_reason_when_nothing_else_is_slow() -> None:
    """One request per drain: the rate of appends limits the rate of requests, and the text has the number."""
    told = telemetry(
        refusals=[refusal("queue_timeout", "[TIMEOUT_CLEAN_QUEUE]x")], stages=[stage("append", p50=10.0, p99=15.0)]
    )
    finding = the(diagnose(snapshot(told), settings(sendDrainMax="1")), "refused-timeout")
    assert "RocketMQ's pace" in finding.cause
    assert "one append at a time at p50 is at most 100/s requests" in finding.evidence
    assert [advice.name for advice in finding.settings] == ["broker.send_drain_max"]


def test_sweeps_of_other_queues_are_not_blamed_on_sends() -> None:
    """Only the pull queue was swept: the finding concerns reads."""
    told = telemetry(
        pairs=[pair(), pair("PullMessageThread", swept=7)],
        refusals=[refusal("queue_timeout", "[TIMEOUT_CLEAN_QUEUE]x")],
    )
    found = diagnose(snapshot(told), settings())
    assert "refused-timeout" not in keys(found)
    assert the(found, "refused-timeout-other").area is Area.READS


def test_a_full_queue_other_than_that_of_sends_is_not_blamed_on_sends() -> None:
    """The admin queue overflows: sends were not affected."""
    told = telemetry(
        pairs=[pair(), pair("AdminBrokerThread", refused_full=3)], refusals=[refusal("queue_full", "[OVERLOAD]x")]
    )
    assert "refused-queue-full-other" in found_by(told)
    assert "refused-queue-full" not in found_by(told)


@pytest.mark.parametrize(
    ("page_cache", "key"),
    [
        (PageCacheTelemetry(busy=True, lock_held_ms=1500, timeout_ms=1000), "page-cache-busy"),
        (PageCacheTelemetry(lock_held_ms=1001, timeout_ms=1000), "page-cache-busy"),
        (PageCacheTelemetry(lock_held_ms=1000, timeout_ms=1000), ""),
        (PageCacheTelemetry(lock_held_ms=10_000_000, timeout_ms=1000), ""),
        (PageCacheTelemetry(longest_hold_ms_last_minute=501, timeout_ms=1000), "page-cache-long-hold"),
        (PageCacheTelemetry(longest_hold_ms_last_minute=500, timeout_ms=1000), ""),
    ],
)
def test_page_cache_is_busy_above_its_limit_and_below_the_guard(page_cache: PageCacheTelemetry, key: str) -> None:
    """RocketMQ's rule, limit < held < 10,000,000 ms; a hold above half of the limit is a warning."""
    assert found_by(telemetry(page_cache=page_cache)) == ({key} if key else set())


@pytest.mark.parametrize(
    ("queue", "speaks"),
    [
        ({"queue_size": 5000}, False),
        ({"queue_size": 5001}, True),
        ({"queue_bytes": 129 << 20}, True),
        ({"head_wait_ms": 100}, False),
        ({"head_wait_ms": 101}, True),
    ],
)
def test_a_send_queue_above_half_of_a_limit_is_a_warning(queue: dict[str, Any], speaks: bool) -> None:
    """The limits are the count, the bytes, and the age of the oldest request."""
    assert found_by(telemetry(pairs=[pair(**queue)])) == ({"send-queue-filling"} if speaks else set())


@pytest.mark.parametrize(
    ("given_stage", "key"),
    [
        (stage("append", p99=20.0), "append-slow"),
        (stage("append", p99=19.9, longest=199.0), ""),
        (stage("append", p99=5.0, longest=200.0), "append-stalled"),
        (stage("lock_wait", p99=20.0), "append-lock-contended"),
        (stage("write", p99=100.0), "answers-leave-slowly"),
        (stage("read", p99=100.0), "requests-arrive-slowly"),
        (stage("read", p99=99.0), ""),
        (stage("process", p99=100.0, pair="PullMessageThread"), "reads-slow"),
        (stage("process", p99=99.0, pair="PullMessageThread"), ""),
    ],
)
def test_a_slow_stage_is_found_before_anything_is_refused(given_stage: object, key: str) -> None:
    """Each stage has its own limit at p99."""
    assert found_by(telemetry(stages=[given_stage])) == ({key} if key else set())


@pytest.mark.parametrize(
    ("pool", "expected"),
    [
        (PoolTelemetry(size=5, available=5, locked=True), set()),
        (PoolTelemetry(size=5, available=2, locked=True), set()),
        (PoolTelemetry(size=5, available=1, locked=True), {"pool-low"}),
        (PoolTelemetry(size=5, available=0, locked=True), {"pool-deficient"}),
        (PoolTelemetry(size=5, available=1, locked=True, deficient=True), {"pool-deficient"}),
        (PoolTelemetry(size=5, available=5, locked=False), {"pool-not-locked"}),
        (PoolTelemetry(size=5, available=5, locked=False, survives=True), {"pool-not-locked"}),
        (PoolTelemetry(size=5, available=5, locked=True, survives=True), {"pool-on-disk"}),
        (PoolTelemetry(size=5, available=5, locked=True, survives=True, cannot_stall=True), set()),
    ],
)
def test_the_pool_warns_below_40_percent_and_fails_at_none(pool: PoolTelemetry, expected: set[str]) -> None:
    """The cost of the pool is a note whenever it is on."""
    found = found_by(telemetry(pool=pool), {"transientStorePoolEnable": "true"})
    assert found == expected | {"pool-price"}


@pytest.mark.parametrize(("survives", "words"), [(True, "when the machine dies"), (False, "when the process dies")])
def test_the_price_of_the_pool_depends_on_its_kind(survives: bool, words: str) -> None:
    """What survives the process does not survive a container of its own shared memory."""
    told = telemetry(pool=PoolTelemetry(size=5, available=5, locked=True, survives=survives))
    found = the(diagnose(snapshot(told), settings(transientStorePoolEnable="true")), "pool-price")
    assert words in found.title
    assert ("container" in found.cure) == survives


@pytest.mark.parametrize(
    ("size", "words"), [(2, "none is free while both exist"), (3, "takes less than producers send")]
)
def test_a_pool_that_is_too_small_is_not_blamed_on_the_disk(size: int, words: str) -> None:
    """As in RocketMQ, two segments hold a buffer each at any time."""
    told = telemetry(pool=PoolTelemetry(size=size, available=0, locked=True, deficient=True))
    assert words in the(diagnose(snapshot(told), settings()), "pool-deficient").cause


@pytest.mark.parametrize(
    ("request_name", "severity", "words"),
    [
        (
            "HEART_BEAT",
            Severity.ERROR,
            "12 heartbeats of C++ clients, version 63, refused: these clients are not members",
        ),
        ("SEND_MESSAGE_V2", Severity.WARNING, "12 sends of C++ clients, version 63, refused: these messages"),
        ("PULL_MESSAGE", Severity.WARNING, "12 pulls of C++ clients, version 63, refused: these consumers get nothing"),
        ("QUERY_ASSIGNMENT", Severity.NOTE, "12 QUERY_ASSIGNMENT requests of C++ clients, version 63, refused"),
    ],
)
def test_a_client_that_is_refused_is_named(request_name: str, severity: Severity, words: str) -> None:
    """The finding has the client, the effect, and the broker's own words; the cause has no second finding."""
    told = telemetry(
        refused_requests=[refused_request(request=request_name)],
        refusals=[refusal("codec", "HeartbeatData refused", code=1)],
    )
    slug = request_name.lower().replace("_", "-")
    finding = the(found := diagnose(snapshot(told), settings()), f"refused-requests-{slug}-1-cpp-63")
    assert keys(found) == {finding.key}
    assert finding.severity is severity
    assert finding.title.startswith(words)
    assert finding.evidence == (
        "12 requests refused in the last minute, 40 since the start, code 1, cause codec; "
        'the last: "HeartbeatData refused: x"',
        "the last: from 10.0.0.3:5, client id c@1, group billing",
    )
    assert "docs/compatibility.md" in finding.cure
    line = next(line for line in examine(snapshot(told), BrokerSettings({})).areas if line.area is Area.ADMISSION)
    assert "12 requests refused for what is in them in the last minute" in line.text


def test_clients_that_were_refused_before_the_window_are_no_finding() -> None:
    """The clients were repaired."""
    assert found_by(telemetry(refused_requests=[refused_request(last_minute=0)])) == set()


def test_a_request_that_no_broker_serves_has_its_own_cure() -> None:
    """An option of the client may avoid it; even one per second is only a note."""
    told = telemetry(refused_requests=[refused_request(request="QUERY_ASSIGNMENT", code=3, cause="bad_request")])
    [finding] = diagnose(snapshot(told), settings())
    assert "request codes" in finding.cure


def test_each_client_that_is_refused_has_a_finding_of_its_own() -> None:
    """Kinds differ by request, code, language and version."""
    kinds = [refused_request(), refused_request(code=13), refused_request(language="GO"), refused_request(version="x")]
    assert len(found_by(telemetry(refused_requests=kinds))) == 4


def test_every_refusal_turns_admission_red() -> None:
    """The admission light shows every refusal, even one with a cause elsewhere; a slow append is red then, too."""
    timeout = refusal("queue_timeout", "[TIMEOUT_CLEAN_QUEUE]x")
    for stages, append in (([], Light.GREEN), ([stage("append", p99=100.0)], Light.RED)):
        told = telemetry(refusals=[timeout], stages=stages)
        lights = {line.area: line.light for line in examine(snapshot(told), BrokerSettings(settings())).areas}
        assert (lights[Area.ADMISSION], lights[Area.SEND_QUEUE]) == (Light.RED, Light.RED)
        assert (lights[Area.APPEND], lights[Area.FLUSH]) == (append, Light.GREEN)


@pytest.mark.parametrize(
    ("flush", "more_stages", "expected"),
    [
        (FlushTelemetry(mode="ASYNC_FLUSH", count=9, p99_us=99_000), [], set()),
        (FlushTelemetry(mode="ASYNC_FLUSH", count=9, p99_us=100_000), [], {"sync-slow"}),
        (FlushTelemetry(mode="SYNC_FLUSH", count=9, p50_us=900, p99_us=9000), [], {"sync-flush-cost"}),
        (FlushTelemetry(mode="SYNC_FLUSH", count=0), [], set()),
        (FlushTelemetry(mode="SYNC_FLUSH", count=9), [stage("flush_wait", longest=5000.0)], {"flush-timeout"}),
        (FlushTelemetry(mode="SYNC_FLUSH", count=9), [stage("flush_wait", longest=4999.0)], {"sync-flush-cost"}),
        (FlushTelemetry(behind_bytes=256 << 20), [], set()),
        (FlushTelemetry(behind_bytes=(256 << 20) + 1), [], {"flush-behind"}),
        (FlushTelemetry(fenced=True), [], {"log-fenced"}),
    ],
)
def test_flush(flush: FlushTelemetry, more_stages: list[object], expected: set[str]) -> None:
    """Slow syncs, waiters that time out, unsynced bytes, the fence; the cost of SYNC_FLUSH is a note."""
    assert found_by(telemetry(flush=flush, stages=more_stages)) == expected


@pytest.mark.parametrize(("p99_ms", "severity"), [(20.0, Severity.NOTE), (100.0, Severity.WARNING)])
def test_a_slow_append_is_a_note_until_it_takes_half_of_the_wait_that_a_send_is_allowed(
    p99_ms: float, severity: Severity
) -> None:
    """Sends may wait for 200 ms."""
    told = telemetry(stages=[stage("append", p99=p99_ms, longest=160.0)])
    assert the(diagnose(snapshot(told), settings()), "append-slow").severity is severity


@pytest.mark.parametrize(
    ("mode", "p99_ms", "severity"),
    [
        ("ASYNC_FLUSH", 499, Severity.NOTE),
        ("ASYNC_FLUSH", 500, Severity.WARNING),
        ("SYNC_FLUSH", 100, Severity.WARNING),
    ],
)
def test_a_slow_sync_that_no_send_waits_for_is_a_note_until_it_delays_the_flush(
    mode: str, p99_ms: int, severity: Severity
) -> None:
    """The flush of ASYNC_FLUSH runs every 500 ms."""
    told = telemetry(flush=FlushTelemetry(mode=mode, count=9, p99_us=p99_ms * 1000))
    assert the(diagnose(snapshot(told), settings()), "sync-slow").severity is severity


@pytest.mark.parametrize(
    ("runtime", "expected"),
    [
        ({"commitLogDiskRatio": "0.75"}, set()),
        ({"commitLogDiskRatio": "0.76"}, {"disk-filling"}),
        ({"consumeQueueDiskRatio": "0.90"}, {"disk-filling"}),
        ({"consumeQueueDiskRatio": "0.91"}, {"disk-full"}),
        ({"commitLogDiskRatio": "-1", "consumeQueueDiskRatio": "nan"}, set()),
        ({"dispatchBehindBytes": str(16 << 20)}, set()),
        ({"dispatchBehindBytes": str((16 << 20) + 1)}, {"dispatch-behind"}),
        ({"pullHolds": "50000"}, set()),
        ({"pullHolds": "50001"}, {"many-held-pulls"}),
    ],
)
def test_disk_dispatch_and_held_pulls_have_limits(runtime: dict[str, Any], expected: set[str]) -> None:
    """RocketMQ's runtime table has these values, too."""
    assert found_by(telemetry(), **runtime) == expected


def test_a_broker_without_retention_is_not_said_to_delete_files() -> None:
    """It does not claim that files are deleted, and advises no setting that the broker lacks."""
    told = settings()
    del told["fileReservedTime"]
    finding = diagnose(snapshot(telemetry(), commitLogDiskRatio="0.95"), told)[0]
    assert (finding.key, finding.severity, finding.settings) == ("disk-filling", Severity.WARNING, ())
    assert "deletes nothing" in finding.cause


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"cleanFileForciblyEnable": "false"}, "Above 90 % puts are refused; messages younger than file_reserved_time"),
        ({"cleanFileForciblyEnable": "true"}, "Above 85 % the oldest files of the log are deleted, read or not"),
        ({"cleanFileForciblyEnable": "false", "diskSpaceWarningLevelRatio": "95"}, "Above 95 % puts are refused"),
    ],
)
def test_what_a_filling_disk_leads_to_follows_from_the_settings(told: dict[str, str], words: str) -> None:
    """A setting decides whether messages are deleted by force; the limits are settings, too."""
    (finding,) = diagnose(snapshot(telemetry(), commitLogDiskRatio="0.87"), settings(**told))
    assert (finding.key, finding.severity) == ("disk-filling", Severity.WARNING)
    assert words in finding.cause
    assert [advice.name for advice in finding.settings] == ["store.file_reserved_time"]


def test_advised_settings_exist() -> None:
    """They are in the advised section: an operator who copies the advice must be able to start the broker."""
    from pocketmq.cli.daemon.daemon import SECTIONS

    sources = (Path(doctor.__file__).parent / "rules").glob("*.py")
    names = {name for source in sources for name in re.findall(r"advice\(\s*\"(\w+)\"", source.read_text())}
    assert "file_reserved_time" in names
    metrics = BrokerMetrics(snapshot(telemetry()), BrokerSettings(settings()))
    for name in names:
        section, _, key = metrics.name_of(name).partition(".")
        assert key in SECTIONS[section].__struct_fields__, (section, key)


def test_advice_that_is_followed_already_is_left_out() -> None:
    """It does not advise a value that is set already."""
    told = telemetry(stages=[stage("lock_wait", p99=50.0)])
    finding = diagnose(snapshot(told), settings(sendMessageThreadPoolNums="1"))[0]
    assert (finding.key, finding.settings) == ("append-lock-contended", ())


def test_advice_is_kept_for_a_broker_that_sends_no_settings() -> None:
    """The present value is unknown then; the advice states that."""
    told = telemetry(page_cache=PageCacheTelemetry(busy=True, lock_held_ms=2000, timeout_ms=1000))
    assert [advice.present for advice in diagnose(snapshot(told), {})[0].settings] == ["not known"]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"osPageCacheBusyTimeOutMills": "1001"}, "bad-cure-page-cache-timeout"),
        ({"osPageCacheBusyTimeOutMills": "1000"}, ""),
        ({"brokerFastFailureEnable": "false"}, "bad-cure-fast-failure-off"),
        ({"sendThreadPoolQueueCapacity": "10001"}, "bad-cure-queue-capacity"),
        ({"sendThreadPoolQueueCapacity": "9999"}, ""),
        ({"sendQueueSizeBytesMax": str(2 << 30)}, "queue-bytes-high"),
        ({"waitTimeMillsInSendQueue": "201"}, "send-wait-raised"),
        ({"sendDrainMax": "1"}, "rocketmq-pace"),
        ({"transientStorePoolEnable": "true", "flushDiskType": "SYNC_FLUSH"}, ""),
    ],
)
def test_bad_cures_are_called_by_name(changed: dict[str, str], expected: str) -> None:
    """The finding appears from the first value above the default on."""
    found = diagnose(snapshot(telemetry()), settings(**changed))
    assert keys(found) == ({expected} if expected else set())
    for finding in found:
        name = next(iter(changed))
        assert any(advice.present == changed[name] for advice in finding.settings)
        if expected.startswith("bad-cure"):
            assert finding.title.startswith("bad cure: ")


def test_a_wait_as_long_as_a_clients_timeout_is_worse_than_a_stopgap() -> None:
    """From 3 s on no client waits for the answer."""
    severities = [
        diagnose(snapshot(telemetry()), settings(waitTimeMillsInSendQueue=wait))[0].severity
        for wait in ("2999", "3000")
    ]
    assert severities == [Severity.NOTE, Severity.WARNING]


def test_settings_of_rocketmq_are_found_and_named_as_there() -> None:
    """``osPageCacheBusyTimeOutMills`` is RocketMQ's spelling; advice for its operator uses RocketMQ's names."""
    text = "osPageCacheBusyTimeOutMills=5000\nflushDiskType=ASYNC_FLUSH\n#comment=1\nnonsense\n=x\n"
    found = diagnose(snapshot(None, pocketmq=False), BrokerSettings.parse(text))
    advice = the(found, "bad-cure-page-cache-timeout").settings[0]
    assert (advice.name, advice.present, advice.suggested) == ("osPageCacheBusyTimeOutMills", "5000", "1000")


def test_a_rocketmq_without_telemetry_is_read_by_its_runtime_table() -> None:
    """Sizes in RocketMQ's notation are understood; missing values are reported once and never guessed."""
    runtime: dict[str, Any] = {
        "pageCacheLockTimeMills": "1500",
        "remainTransientStoreBufferNumbs": "0",
        "remainHowManyDataToFlush": "300.5 MiB",
        "remainHowManyDataToCommit": "2 KiB",
        "sendThreadPoolQueueSize": "8000",
        "sendThreadPoolQueueCapacity": "10000",
        "sendThreadPoolQueueHeadWaitTimeMills": "150",
    }
    told = snapshot(None, pocketmq=False, **runtime)
    diagnosis = examine(told, BrokerSettings(settings(transientStorePoolEnable="true")))
    expected = {"page-cache-busy", "pool-deficient", "pool-price", "flush-behind", "send-queue-filling"}
    assert {finding.key for finding in diagnosis.findings} == expected
    assert any("RocketMQ has no telemetry" in text for text in diagnosis.missing)
    assert next(line for line in diagnosis.areas if line.area is Area.ADMISSION).light is Light.NO_DATA


def test_two_looks_show_what_totals_hide() -> None:
    """Without telemetry, counters that grew between two checks are current refusals; a restart between them is not."""
    before = snapshot(None, at_ms=100_000, putMessageFailedTimes="5", sendThreadPoolRefused="100")
    now = snapshot(None, at_ms=102_000, putMessageFailedTimes="8", sendThreadPoolRefused="150")
    found = diagnose(now, settings(), before)
    assert keys(found) == {"puts-failed", "refused-queue-full"}
    assert the(found, "puts-failed").evidence == ("3 puts failed within 2.0 s",)
    started_again = snapshot(None, at_ms=102_000, putMessageFailedTimes="8", bootTimestamp="2000")
    assert diagnose(started_again, settings(), before) == []
    assert diagnose(now, settings()) == []


def test_the_worst_comes_first_and_each_rule_speaks_once() -> None:
    """Errors, then warnings, then notes; two kinds of one refusal make one finding."""
    told = telemetry(
        refusals=[refusal("queue_full", "[OVERLOAD]a"), refusal("queue_full", "", code=1)],
        flush=FlushTelemetry(mode="SYNC_FLUSH", count=4, p50_us=1000, p99_us=2000),
    )
    found = diagnose(snapshot(told, commitLogDiskRatio="0.8"), settings())
    ranks = [finding.severity.rank for finding in found]
    assert ranks == sorted(ranks)
    assert len({finding.key for finding in found}) == len(found)


def test_slow_requests_are_evidence_of_their_stage() -> None:
    """The slowest requests of the append are shown with it, without control characters."""
    slow = SlowRequest(
        code=310, remote="10.0.0.1:5\x1b[31m", total_ms=900, slowest_stage="append", stages={"append": 880.0}
    )
    told = telemetry(stages=[stage("append", p99=800.0)], slowest=[slow])
    evidence = the(diagnose(snapshot(told), settings()), "append-slow").evidence
    assert any("took 900 ms, 880 ms of it in append" in line for line in evidence)
    assert not any("\x1b" in line for line in evidence)


def test_each_advised_setting_exists_and_has_its_section() -> None:
    """The names in the rules are those of the broker's file; RocketMQ's are in camel case."""
    sources = [path.read_text() for path in Path(doctor.__path__[0], "rules").glob("*.py")]
    advised = {name for text in sources for name in re.findall(r'\.advice\(\s*"(\w+)"', text)}
    assert {"file_reserved_time", "transient_store_pool_enable", "lock_max_live_time"} <= advised
    metrics = BrokerMetrics(snapshot(telemetry()), BrokerSettings({}))
    for name in advised:
        section, _, own = metrics.name_of(name).partition(".")
        assert own in SECTIONS[section].__struct_fields__
