"""/metrics and /health of a real broker: pages for Prometheus and for an orchestrator."""

import asyncio
import base64
import contextlib
import json
import socket
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from pocketmq.auth.config import AuthConfig
from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.metrics.health import LOOP_STALLED_NS, Health, Phase
from pocketmq.broker.stats.disk_space import DiskSpace
from pocketmq.common.errors import Cause
from pocketmq.common.logs import CapturedLog
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.server import NamesrvApp
from pocketmq.remoting.errors import AddressInUse
from pocketmq.remoting.http_server import MetricsConfig
from pocketmq.store.disk.disk_limits import Space
from pocketmq.store.disk.os_file_system import OsFileSystem
from pocketmq.store.errors import DiskError, StoreFull
from tests.broker.conftest import Harness, eventually, store_config
from tests.broker.metrics.test_telemetry import World


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


async def ask(address: str, path: str, headers: str = "") -> tuple[int, bytes]:
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return int(head.split()[1]), body


async def scrape(app: BrokerApp) -> dict[str, Metric]:
    status, body = await ask(app.metrics_address, "/metrics")
    assert status == 200, body
    return {family.name: family for family in text_string_to_metric_families(body.decode())}


async def health(app: BrokerApp) -> tuple[int, Any]:
    status, body = await ask(app.metrics_address, "/health")
    return status, json.loads(body)


async def served(app: BrokerApp, count: int) -> dict[str, Metric] | None:
    """Return a scrape once ``count`` sends were served: they are counted just after their answers, their times last."""
    families = await scrape(app)
    now, pair = samples(families), ("pair", "SendMessageThread")
    done = now["pocketmq_requests_served_total", (pair,)]
    timed = now.get(("pocketmq_stage_seconds_count", (pair, ("stage", "process"))), 0)
    return families if min(done, timed) >= count else None


def samples(families: dict[str, Metric]) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families.values()
        for sample in family.samples
    }


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[BrokerApp]:
    """A broker that serves metrics."""
    app = BrokerApp(
        BrokerConfig(listen_port=0, broker_name="broker-a"),
        store_config(tmp_path / "store", transient_store_pool_enable=True, transient_store_pool_size=2),
        log=CapturedLog(),
        metrics_config=MetricsConfig(listen_port=free_port()),
    )
    await app.start()
    yield app
    await app.stop()


async def test_a_scrape_has_names_types_and_values(app: BrokerApp, harness: Harness) -> None:
    """Prometheus' own parser reads it; counters and histograms never fall; sends are counted."""
    client = await harness.client(app)
    before = await scrape(app)
    await client.put(b"one", b"two")
    await client.put(b"three")
    after = await eventually(partial(served, app, 2))
    types = {name: family.type for name, family in after.items()}
    assert set(types.values()) == {"counter", "gauge", "histogram"}
    assert {types[f"pocketmq_{name}_seconds"] for name in ("stage", "put", "flush")} == {"histogram"}
    assert all(family.documentation for family in after.values())
    first, second = samples(before), samples(after)
    for key, value in first.items():
        name = key[0].removesuffix("_total").removesuffix("_bucket").removesuffix("_count").removesuffix("_sum")
        if types.get(name) in ("counter", "histogram"):
            assert second[key] >= value, key
    assert second["pocketmq_messages_put_total", ()] == 3
    assert second["pocketmq_put_seconds_count", ()] == 2
    send = (("pair", "SendMessageThread"),)
    assert second["pocketmq_requests_served_total", send] == 2
    assert second["pocketmq_queue_capacity", send] == 10_000
    assert second["pocketmq_connections", ()] == 1
    assert second["pocketmq_write_buffers", ()] == 2
    assert second["pocketmq_log_appended_offset", ()] > 0


async def test_the_buckets_of_a_histogram_never_fall(app: BrokerApp, harness: Harness) -> None:
    """Cumulative up to +Inf, which is the count."""
    client = await harness.client(app)
    for _ in range(5):
        await client.put(b"x")
    families = await eventually(partial(served, app, 5))
    rows: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for sample in families["pocketmq_stage_seconds"].samples:
        if sample.name.endswith("_bucket"):
            key = (sample.labels["pair"], sample.labels["stage"])
            rows.setdefault(key, []).append((float(sample.labels["le"]), sample.value))
    assert ("SendMessageThread", "append") in rows
    assert ("SendMessageThread", "replica_wait") in rows
    metrics = samples(families)
    for (pair, stage), buckets in rows.items():
        assert [bound for bound, _ in buckets] == sorted(bound for bound, _ in buckets)
        assert [count for _, count in buckets] == sorted(count for _, count in buckets)
        assert len(buckets) == 12
        count = metrics["pocketmq_stage_seconds_count", (("pair", pair), ("stage", stage))]
        assert buckets[-1] == (float("inf"), count)
    assert rows["SendMessageThread", "append"][-1][1] == 5


async def test_refused_requests_are_counted_by_request_and_client(app: BrokerApp) -> None:
    """Label values are from a closed list, or bounded in number."""
    for version in (63, 409, 409):
        app.refused_requests.note(34, 1, Cause.CODEC, "no", remote="1.2.3.4:5", language=1, version=version)
    metrics = samples(await scrape(app))
    for name, count in (("63", 1), ("V4_9_8", 2)):
        labels = {"request": "HEART_BEAT", "code": "1", "cause": "codec", "language": "CPP", "version": name}
        assert metrics["pocketmq_requests_refused_total", tuple(sorted(labels.items()))] == count


async def test_pages_answer_while_the_loop_is_busy_and_the_lock_is_held(app: BrokerApp) -> None:
    """The pages wait neither for the event loop nor for a lock that disk work holds."""
    address = app.metrics_address
    answers: list[tuple[int, bytes]] = []
    done = threading.Event()

    def in_a_thread() -> None:
        answers.extend(asyncio.run(both()))
        done.set()

    async def both() -> list[tuple[int, bytes]]:
        return [await ask(address, "/metrics"), await ask(address, "/health")]

    with app.store.log.lock, app.store.log._flush_lock:
        thread = threading.Thread(target=in_a_thread)
        thread.start()
        assert done.wait(30)  # the loop of the broker is this thread: it serves nothing meanwhile
    thread.join()
    assert [status for status, _ in answers] == [200, 200]


async def test_health_names_its_reasons(app: BrokerApp) -> None:
    """200 while all is well, 503 with the reason when not, and a warning alone does not fail."""
    status, report = await health(app)
    assert (status, report["status"], report["phase"], report["broker"]) == (200, "ok", "running", "broker-a")
    assert report["reasons"] == []
    disk = app.observation.disk
    assert disk is not None
    disk.commit_log = Space(free_bytes=9 << 20, total_bytes=100 << 30)
    status, warned = await health(app)
    assert (status, warned) == (200, {**report, "warnings": ["disk_almost_full"], "details": warned["details"]})
    assert list(warned["details"]) == ["disk_almost_full"]
    disk.commit_log = Space(free_bytes=1 << 20, total_bytes=100 << 30)
    status, full = await health(app)
    assert (status, full["reasons"], full["status"]) == (503, ["disk_full"], "failing")
    assert (
        "nearly full (1 MiB are free): below 2 MiB sends are refused (store.disk_free_bytes_min)"
        in full["details"]["disk_full"]
    )
    disk.commit_log = Space(free_bytes=9 << 20, total_bytes=100 << 30)
    app.store.components.allocator.failure = StoreFull("create mapped file failed")
    status, stuck = await health(app)
    assert (status, stuck["reasons"]) == (503, ["disk_full"]), "the present file of the log was the last"
    app.store.components.allocator.failure = None
    disk.commit_log = Space()
    app.store.log.fence(DiskError("sync failed", why="EIO"))
    status, fenced = await health(app)
    assert (status, fenced["reasons"]) == (503, ["log_fenced"])
    assert samples(await scrape(app))["pocketmq_log_fenced", ()] == 1
    app.store.log.fenced_by = None  # so that the end of the test can close the store
    server = app._server
    assert server is not None
    server.full_ns = server.clock.monotonic_ns()
    status, refusing = await health(app)
    assert (status, refusing["reasons"]) == (503, ["connections_refused"])


def test_health_follows_the_life_of_a_broker(tmp_path: Path) -> None:
    """Starting and stopping are reasons; so are a busy page cache and a stalled loop."""
    world = World(tmp_path)
    report = Health("b", world.clock)
    assert report.report().reasons == ["starting"]
    report.running(world.telemetry, DiskSpace(OsFileSystem(), str(tmp_path), str(tmp_path)))
    assert report.report().status == "ok"
    with world.store.log.lock:
        world.clock.advance_ms(1001)
        assert report.report().reasons == ["page_cache_busy"]
    world.seconds(3)
    assert report.report().reasons == []
    world.clock.advance_ms(LOOP_STALLED_NS / 1e6 + 1)
    assert report.report().reasons == ["event_loop_stalled"]
    world.seconds(1)
    report.stopping()
    assert (report.report().reasons, report.report().phase) == (["stopping"], Phase.STOPPING.value)


async def test_ready_is_narrower_than_health(app: BrokerApp) -> None:
    """A broker that serves reads stays ready with a full disk; a fenced one does not, and still lives."""

    async def asked(path: str) -> tuple[int, Any]:
        status, body = await ask(app.metrics_address, path)
        return status, json.loads(body)

    assert await asked("/ready") == (200, {"status": "ready", "phase": "running", "reasons": [], "details": {}})
    assert await asked("/live") == (200, {"status": "live", "phase": "running", "reasons": [], "details": {}})
    app.store.components.allocator.failure = StoreFull("create mapped file failed")
    assert (await health(app))[0] == 503
    assert (await asked("/ready"))[0] == 200
    app.store.components.allocator.failure = None
    app.store.log.fence(DiskError("sync failed", why="EIO"))
    status, report = await asked("/ready")
    assert (status, report["reasons"]) == (503, ["log_fenced"])
    assert (await asked("/live"))[0] == 200
    app.store.log.fenced_by = None


def test_probes_follow_the_life_of_a_broker(tmp_path: Path) -> None:
    """One that recovers is alive and not ready; one whose loop stands is neither; one that no name server has accepted
    is not ready."""
    world = World(tmp_path)
    probes = Health("b", world.clock)
    assert (probes.live().reasons, probes.ready().reasons) == ([], ["starting"])
    probes.running(world.telemetry, DiskSpace(OsFileSystem(), str(tmp_path), str(tmp_path)))
    refused = {"10.0.0.1:9876": "not asked yet"}
    probes.not_registered = lambda: refused
    assert probes.ready().reasons == ["not_registered"]
    assert "no client finds it" in probes.ready().details["not_registered"]
    refused.clear()
    assert probes.ready().reasons == []
    world.clock.advance_ms(LOOP_STALLED_NS / 1e6 + 1)
    assert (probes.live().reasons, probes.ready().reasons) == (["event_loop_stalled"], ["event_loop_stalled"])
    world.seconds(1)
    probes.stopping()
    assert (probes.live().reasons, probes.ready().reasons) == ([], ["stopping"])


async def test_a_broker_is_ready_once_a_name_server_has_it(tmp_path: Path) -> None:
    """Not before; its name server comes late here."""
    namesrv = NamesrvApp(NamesrvConfig(listen_port=0))
    await namesrv.start()
    address, port = namesrv.address, namesrv.port
    await namesrv.stop()
    app = BrokerApp(BrokerConfig(listen_port=0, namesrv_addr=address), store_config(tmp_path / "store"))
    probes = app.observation.health.ready
    assert "not_registered" in probes().reasons
    await app.start()
    assert app.observation.health.ready().reasons == ["not_registered"]
    late = NamesrvApp(NamesrvConfig(listen_port=port))
    await late.start()
    await eventually(lambda: not app.observation.health.ready().reasons)
    await app.stop()
    await late.stop()


async def test_strangers_read_no_names(tmp_path: Path) -> None:
    """Where users authenticate: topics, groups and clients are for them; whether the broker works is for everybody."""
    users = AuthConfig(authentication_enabled=True, init_username="root", init_password="root-secret")
    app = BrokerApp(
        BrokerConfig(listen_port=0),
        store_config(tmp_path / "store"),
        metrics_config=MetricsConfig(listen_port=free_port()),
        auth_config=users,
    )
    await app.start()
    for path, status in (("/health", 200), ("/ready", 200), ("/live", 200), ("/metrics", 401), ("/connz", 401)):
        answer = await ask(app.metrics_address, path)
        assert answer[0] == status, path
    assert app.observation.routes(), "each page is in one of the two"
    assert {route.path for route in app.observation.routes() if route.is_public} == {"/health", "/ready", "/live"}
    root = base64.b64encode(b"root:root-secret").decode()
    status, body = await ask(app.metrics_address, "/metrics", f"Authorization: Basic {root}\r\n")
    assert status == 200
    assert b'pocketmq_access_denials_total{kind="user"} 2.0' in body
    await app.stop()


async def test_a_port_in_use_stops_the_start_only_if_it_was_asked_for(tmp_path: Path) -> None:
    """Else the broker runs without metrics and logs it; a refused start has not touched the store."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        config = MetricsConfig(listen_port=taken.getsockname()[1])

        def app(name: str, required: bool, log: CapturedLog) -> BrokerApp:
            return BrokerApp(
                BrokerConfig(listen_port=0),
                store_config(tmp_path / name),
                log=log,
                metrics_config=config,
                metrics_required=required,
            )

        with pytest.raises(AddressInUse, match=r"metrics\.listen_port"):
            await app("one", True, CapturedLog()).start()
        assert not (tmp_path / "one").exists()
        log = CapturedLog()
        broker = app("two", False, log)
        await broker.start()
        assert broker.metrics_address == ""
        await broker.stop()
        assert len(log.of("metrics_not_served")) == 1


async def test_without_a_port_nothing_listens(harness: Harness) -> None:
    """The library's default: no port, no thread."""
    app = await harness.broker()
    assert app.metrics_address == ""
    assert "HttpServer" not in [thread.name for thread in threading.enumerate()]
    assert app.observation.http_port == 0


async def test_every_logger_exists(tmp_path: Path) -> None:
    """The broker asks for the logs by the names that operators of RocketMQ know."""
    asked: dict[str, CapturedLog] = {}

    def logger(name: str) -> CapturedLog:
        return asked.setdefault(name, CapturedLog())

    app = BrokerApp(BrokerConfig(listen_port=0), store_config(tmp_path / "store"), loggers=logger)
    await app.start()
    app.store.log.fence(DiskError("sync failed", why="EIO"))
    with contextlib.suppress(Exception):
        await app.stop()
    assert {"broker", "store", "store_error", "lock", "watermark", "remoting"} <= set(asked)
    assert asked["store_error"].of("log_fenced")
    assert not asked["store"].of("log_fenced")
