"""``MODULE:CONSUMER``: what is found, and what each mistake says."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pocketmq.cli.worker.loading import load_consumers
from pocketmq.client import PushConsumer, blocking
from pocketmq.common.errors import ConfigError

APPLICATION = """
from types import SimpleNamespace
from pocketmq.client import PushConsumer, blocking

consumer = PushConsumer("one", "127.0.0.1:9876")
both = [consumer, PushConsumer("two", "127.0.0.1:9876")]
threads = blocking.PushConsumer("three", "127.0.0.1:9876")
mixed = [consumer, threads]
nested = SimpleNamespace(deep=SimpleNamespace(consumer=consumer))
nothing = ()
number = 7

def make():
    return both
"""

Application = Callable[[str], str]


@pytest.fixture
def application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Application]:
    """Write a module into the current directory; return its name."""
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    path = list(sys.path)

    def write(text: str) -> str:
        (tmp_path / "worker_application.py").write_text(text)
        return "worker_application"

    yield write
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if name.startswith("worker_application"):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("", ["one"]),
        (":consumer", ["one"]),
        (":both", ["one", "two"]),
        (":make", ["one", "two"]),
        (":nested.deep.consumer", ["one"]),
    ],
)
def test_consumers_are_found(application: Application, name: str, groups: list[str]) -> None:
    """By attribute, list or function; without a name it is ``consumer``."""
    found = load_consumers(application(APPLICATION) + name)
    assert isinstance(found, list)
    assert all(isinstance(consumer, PushConsumer) for consumer in found)
    assert [consumer.group for consumer in found] == groups


def test_a_blocking_consumer_comes_alone(application: Application) -> None:
    """It has a loop of its own."""
    module = application(APPLICATION)
    assert isinstance(load_consumers(module + ":threads"), blocking.PushConsumer)
    with pytest.raises(ConfigError, match="start a worker for it alone"):
        load_consumers(module + ":mixed")


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (":consumer", "write MODULE:CONSUMER"),
        ("no_such_module_here:consumer", "there is no module 'no_such_module_here' here"),
        ("worker_application.part:consumer", "worker_application.part"),
        ("worker_application:consumr", "it has consumer, threads"),
        ("worker_application:number", "is a int, no PushConsumer"),
        ("worker_application:nothing", "is empty"),
        ("worker_application:consumer.group", "is a str"),
    ],
)
def test_a_mistake_is_named_with_its_cure(application: Application, target: str, text: str) -> None:
    """One line, exit code 2."""
    application(APPLICATION)
    with pytest.raises(ConfigError, match=text):
        load_consumers(target)


@pytest.mark.parametrize("text", ["import not_installed_here", "1 / 0", "def f(:"])
def test_an_error_in_the_module_keeps_its_traceback(
    application: Application, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    """It is the application's own error, not "no such module"."""
    with pytest.raises(ConfigError, match="worker_application cannot be imported"):
        load_consumers(application(text))
    assert "Error" in capsys.readouterr().err
