"""Spring Boot's starter, Spring Cloud Stream's binder and Camel's component, which stand on the Java client."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop.client_cases import Bench, Servers
from tests.interop.pocketmq_server import pocketmq_server
from tests.interop.rocketmq_servers import rocketmq_servers
from tests.interop.test_clients import PAGE, ROCKETMQ_SETTINGS
from tests.interop.toolchain import require_java, start_java

pytestmark = pytest.mark.clients
PLACES = ("pocketmq", "rocketmq-5.3")
FRAMEWORKS = {
    "spring-boot": "rocketmq-spring-boot-starter 2.3.1",
    "spring-stream": "spring-cloud-starter-stream-rocketmq 2021.0.5.0",
    "camel-main": "camel-rocketmq 4.8.0",
}
MAIN = {"spring-boot": "SpringBootCases", "spring-stream": "SpringStreamCases", "camel-main": "CamelCases"}
TOPICS = {
    "spring-boot": ("plain", "tags", "ordered", "retry", "reply", "raw"),
    "spring-stream": ("plain", "tags", "ordered", "upper", "uppered", "retry"),
    "camel-main": ("plain", "tags"),
}


@pytest.fixture(scope="module", params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Servers]]:
    """Start the servers of one place."""
    name: str = request.param
    with _servers(name, tmp_path_factory.mktemp(name)) as servers:
        yield name, servers


@contextmanager
def _servers(name: str, directory: Path) -> Iterator[Servers]:
    if name == "pocketmq":
        with pocketmq_server(directory) as server:
            yield server
    else:
        with rocketmq_servers("5.3", directory, **ROCKETMQ_SETTINGS) as servers:
            yield servers


def stream_settings(namesrv: str, prefix: str) -> dict[str, str]:
    """Return the bindings of ``SpringStreamCases``."""
    settings = {
        "spring.cloud.function.definition": "plain;tags;ordered;upper;uppered;retry",
        "spring.cloud.stream.rocketmq.binder.name-server": namesrv,
    }
    places = {name: f"{name}-in-0" for name in TOPICS["spring-stream"]}
    for name, binding in places.items():
        bound = f"spring.cloud.stream.bindings.{binding}"
        settings |= {f"{bound}.destination": f"{prefix}-{name}", f"{bound}.group": f"{prefix}-{name}"}
        of = f"spring.cloud.stream.bindings.to{name.capitalize()}-out-0"
        settings[f"{of}.destination"] = f"{prefix}-{name}"
        settings[f"spring.cloud.stream.rocketmq.bindings.to{name.capitalize()}-out-0.producer.group"] = f"{prefix}-p"
    settings["spring.cloud.stream.bindings.upper-out-0.destination"] = f"{prefix}-uppered"
    settings["spring.cloud.stream.rocketmq.bindings.upper-out-0.producer.group"] = f"{prefix}-u"
    rocketmq = "spring.cloud.stream.rocketmq.bindings"
    settings[f"{rocketmq}.tags-in-0.consumer.subscription"] = "a || c"
    settings[f"{rocketmq}.ordered-in-0.consumer.push.orderly"] = "true"
    settings["spring.cloud.stream.bindings.toOrdered-out-0.producer.partition-count"] = "1"
    settings["spring.cloud.stream.bindings.retry-in-0.consumer.max-attempts"] = "1"
    return settings


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", list(FRAMEWORKS))
def test_a_framework(kind: str, place: tuple[str, Servers], tmp_path: Path) -> None:
    """Every case passes, and the page has the figure."""
    require_java()
    name, servers = place
    prefix = f"{kind}-{name.replace('.', '_')}"
    for topic in TOPICS[kind]:
        Bench.create_topic(servers.broker, f"{prefix}-{topic}", 1 if topic == "ordered" else 4)
    options = ["-Xms64m", "-Xmx512m", f"-Dprefix={prefix}", "-Dspring.main.banner-mode=off"]
    arguments: tuple[str, ...] = ()
    if kind == "spring-boot":
        options += [f"-Drocketmq.name-server={servers.namesrv}", f"-Drocketmq.producer.group={prefix}-p"]
        options += ["-Drocketmq.producer.send-message-timeout=10000"]
    elif kind == "spring-stream":
        options += [f"-D{key}={value}" for key, value in stream_settings(servers.namesrv, prefix).items()]
    else:
        arguments = (servers.namesrv, prefix)
    results: dict[str, str | None] = {}
    with start_java(kind, MAIN[kind], *arguments, directory=tmp_path, options=options) as java:
        while "end" not in (row := java.read(200)):
            if "case" in row:
                results[row["case"]] = row["failed"]
        failed = {case: why for case, why in results.items() if why is not None}
        print(f"\n{FRAMEWORKS[kind]} on {name}: {len(results) - len(failed)} of {len(results)}")
        assert failed == {}, java.last_lines()
    rows = dict(re.findall(r"^\| (.+?) \|((?: \d+ of \d+ \| ?){2})", PAGE.read_text(), re.MULTILINE))
    figure = rows[FRAMEWORKS[kind]].split("|")[PLACES.index(name)].strip()
    assert figure == f"{len(results)} of {len(results)}"
