"""What type checkers know of the SDK: mypy reads ``typed_use.py``, and the arguments of the faces are complete."""

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from pocketmq.client import Producer, PullConsumer, PushConsumer, TransactionProducer
from pocketmq.client.blocking_arguments import (
    ProducerArguments,
    PullConsumerArguments,
    PushConsumerArguments,
    TransactionProducerArguments,
)
from pocketmq.client.producer.producer_options import ProducerSettings
from pocketmq.client.push.consumer_options import ConsumerOptions, ConsumerSettings

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

WRONG = """
from pocketmq.client import Message, Producer, PullConsumer, PushConsumer, blocking
PushConsumer("g", concurency=3)
PushConsumer("g", consume_timeout_ms="x")
PushConsumer("g", start="erliest")
PullConsumer("g").stream("T", start="erliest")
blocking.PushConsumer("g", concurency=3)
blocking.Producer("g", linger="x")
PushConsumer("g").subscribe("T")(lambda: None)
"""


@pytest.mark.soak
@pytest.mark.slow
def test_mypy_knows_the_types_of_handlers_and_settings(tmp_path: Path) -> None:
    """``typed_use.py`` passes with its ``assert_type``; each line of WRONG is an error."""
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG)
    options = ["--strict", "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(tmp_path / "cache")]

    def check(path: Path) -> str:
        command = [sys.executable, "-m", "mypy", *options, "--follow-imports=silent", str(path)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False).stdout

    assert "no issues" in check(HERE / "typed_use.py")
    lines = {line.split(":")[1] for line in check(wrong).splitlines() if ": error:" in line}
    assert lines == {str(number) for number in range(3, 3 + 7)}


@pytest.mark.parametrize(
    ("face", "arguments", "of_its_own"),
    [
        (Producer, ProducerArguments, {"group", "namesrv"}),
        (PullConsumer, PullConsumerArguments, {"group", "namesrv"}),
        (PushConsumer, PushConsumerArguments, {"group", "namesrv"}),
        (TransactionProducer, TransactionProducerArguments, {"group", "namesrv", "check"}),
    ],
)
def test_the_blocking_faces_offer_the_same_arguments(face: Any, arguments: Any, of_its_own: set[str]) -> None:
    """None is missing, and none too many."""
    names = set(inspect.signature(face).parameters)
    if "settings" in names:
        names = names - {"settings"} | set(ConsumerSettings.__annotations__)
    if "options" in names:
        names = names - {"options"} | set(ProducerSettings.__annotations__)
    assert names == set(arguments.__annotations__) | of_its_own


def test_the_settings_of_a_push_consumer_are_those_of_its_options() -> None:
    """``ConsumerSettings`` repeats ``ConsumerOptions`` for type checkers."""
    options = get_type_hints(ConsumerOptions)
    settings = get_type_hints(ConsumerSettings)
    assert settings.keys() == options.keys()
    del settings["message_model"], options["message_model"]  # words instead of any text
    assert settings == options
