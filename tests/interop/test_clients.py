"""Clients in other languages and of other versions pass the same cases here as with RocketMQ.

``client_cases`` has the cases, ``drivers`` the clients. The failures of a client are the same at PocketMQ and at
RocketMQ, or named here; docs/compatibility.md has each client's figure.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop.client_cases import CASES, Bench, Servers, run_all
from tests.interop.drivers import JAVA, OTHERS, PACKAGES, driver
from tests.interop.pocketmq_server import DELAY_LEVELS, pocketmq_server
from tests.interop.rocketmq_servers import ask_json, free_ports, rocketmq_servers

pytestmark = pytest.mark.clients
PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
PLACES = ("pocketmq", "rocketmq-4.9", "rocketmq-5.3")
ROCKETMQ_SETTINGS: dict[str, object] = {
    "flushDiskType": "SYNC_FLUSH",
    "messageDelayLevel": DELAY_LEVELS,
    "transactionTimeOut": 3000,
    "transactionCheckInterval": 3000,
    "transactionOpBatchInterval": 200,
    "brokerFastFailureEnable": "false",
    "osPageCacheBusyTimeOutMills": 60_000,
    "syncFlushTimeout": 60_000,
}
"""Waits as short as PocketMQ's here, and no refusal because a machine is slow."""
LACKS: dict[str, set[str]] = {
    "go": {"java"},
    "cpp": {"java", "sql", "transactions", "request", "dead letter"},
    "rust": {"java", "request"},
    "js": {"java", "oneway", "batch", "ordered", "transactions", "pull", "request", "dead letter"},
    **{client: {"request"} for client in JAVA},
}
"""Client → features that it does not have, or not in the form of the cases."""
LACKS["java-4.2.0"] |= {"transactions"}
RESET = "reset to the start by an administrator"
FAILS: dict[str, dict[str, str]] = {
    "cpp": {
        "batch": "its flag says that it is none",
        "a body of odd bytes": "its C interface ends a body at the first zero byte",
    },
}
"""Client → case that it fails at every server → why."""
NO_RESET = {RESET: "ignores the broker's notice; RocketMQ 5.3 alone moves the next pull"}
NO_ROUTE = dict.fromkeys(CASES, "reads no route without enableActingMaster, which 4.9 does not know")
DIFFERS: dict[tuple[str, str], dict[str, str]] = {
    ("cpp", "pocketmq"): NO_RESET,
    ("cpp", "rocketmq-4.9"): NO_RESET,
    ("js", "pocketmq"): NO_RESET,
    ("js", "rocketmq-4.9"): NO_RESET,
    ("rust", "rocketmq-4.9"): NO_ROUTE,
    ("java-5.3.3", "rocketmq-4.9"): {"consumer with setClientRebalance(false)": "4.9 does not know the request"},
    ("rust", "rocketmq-5.3"): {"tag filter": "its tag codes are not Java's"},
}
"""(client, place) → case that it fails there → why."""


@pytest.fixture(scope="module", params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Servers]]:
    """Start the servers of one place for all clients."""
    name: str = request.param
    with _servers(name, tmp_path_factory.mktemp(name)) as servers:
        yield name, servers


@contextmanager
def _servers(name: str, directory: Path) -> Iterator[Servers]:
    if name == "pocketmq":
        with pocketmq_server(directory, broker_port=free_ports(1)[0]) as server:
            yield server
        return
    with rocketmq_servers(name.removeprefix("rocketmq-"), directory, **ROCKETMQ_SETTINGS) as servers:
        yield servers


def _send(broker: str, topic: str) -> int:
    """Send a message without a body, as another client may (SEND_MESSAGE_V2); return the code of the answer."""
    fields = {"a": "producers", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0"}
    return ask_json(broker, 310, fields | {"i": "", "j": "0", "k": "false", "m": "false"})[0]


def test_an_empty_body(place: tuple[str, Servers]) -> None:
    """4.9 stores it, and so do we; 5.3 answers with its NullPointerException."""
    name, servers = place
    Bench.create_topic(servers.broker, f"empty-{name.replace('.', '_')}")
    assert _send(servers.broker, f"empty-{name.replace('.', '_')}") == (1 if name == "rocketmq-5.3" else 0)


def test_a_send_to_a_topic_that_may_not_be_written(place: tuple[str, Servers]) -> None:
    """Refused here; RocketMQ's brokers leave that to the route (5.3 shows its fault with the empty body instead)."""
    name, servers = place
    topic = f"closed-{name.replace('.', '_')}"
    Bench.create_topic(servers.broker, topic, perm=4)
    assert _send(servers.broker, topic) == {"pocketmq": 16, "rocketmq-4.9": 0, "rocketmq-5.3": 1}[name]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("client", [*OTHERS, *JAVA])
def test_a_client(client: str, place: tuple[str, Servers], tmp_path: Path) -> None:
    """All cases; the figure is printed, and it is the page's."""
    name, servers = place
    with driver(client, servers.namesrv, tmp_path) as process:
        bench = Bench(process, servers, client, f"{client.replace('.', '_')}", frozenset(LACKS[client]))
        results = dict(run_all(bench))
    failed = {case: why for case, why in results.items() if why is not None}
    print(f"\n{PACKAGES[client]} on {name}: {len(results) - len(failed)} of {len(results)}")
    for case, why in failed.items():
        print(f"  {case}: {why}")
    expected = {**FAILS.get(client, {}), **DIFFERS.get((client, name), {})}
    assert set(failed) == set(expected) & set(results), failed
    column = PLACES.index(name)
    rows = dict(re.findall(r"^\| (.+?) \|((?: \d+ of \d+ \|){3})$", PAGE.read_text(), re.MULTILINE))
    figure = rows[PACKAGES[client]].split("|")[column].strip()
    assert figure == f"{len(results) - len(failed)} of {len(results)}"
