"""One language: options mean the same in every command; what destroys asks; creating changes nothing that exists.

Over all commands: a new one has to be put into ``EFFECTS`` before these pass.
"""

import asyncio
import json
import os
import pty
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from pocketmq.client.admin.admin import Admin
from pocketmq.client.blocking import Producer
from pocketmq.common.message import Message
from pocketmq.testing import PocketBroker
from tests.cli.conftest import COMMAND, RunCommand, environment
from tests.cli.test_help_texts import PLAIN
from tests.signals import interruptible

LEAVES: Final = {" ".join(path): command for path, command in PLAIN.items() if not getattr(command, "commands", None)}
"""Every command that does something, by its words."""
READS, SERVES, ADDS, CHANGES, DESTROYS, LOCAL = "reads", "serves", "adds", "changes", "destroys", "local"
EFFECTS: Final = {
    "standalone": SERVES,
    "namesrv": SERVES,
    "broker": SERVES,
    "cluster": SERVES,
    "dashboard": SERVES,
    "produce": ADDS,
    "consume": ADDS,  # the offsets of a group, if one is named
    "request": ADDS,
    "reply": ADDS,
    "worker": LOCAL,  # what the application does
    "bench": ADDS,  # topics of its own
    "scenario": LOCAL,
    "trace": READS,
    "explain": READS,
    "init": LOCAL,
    "user create": ADDS,
    "user update": CHANGES,
    "user delete": DESTROYS,
    "user list": READS,
    "acl create": ADDS,
    "acl delete": DESTROYS,
    "acl list": READS,
    "acl test": READS,
    "acl log": READS,
    "acl import": DESTROYS,  # gives rights to many users at once: it shows its plan and asks
    "whoami": READS,
    "topic list": READS,
    "topic create": ADDS,
    "topic alter": CHANGES,
    "topic describe": READS,
    "topic locate": READS,
    "topic tail": READS,
    "topic purge": DESTROYS,
    "topic delete": DESTROYS,
    "group list": READS,
    "group describe": READS,
    "group seek": DESTROYS,  # the former offsets
    "group delete": DESTROYS,
    "brokers": READS,
    "top": READS,
    "ha status": READS,
    "ha promote": DESTROYS,
    "ha demote": DESTROYS,
    "ha accept-loss": DESTROYS,
    "ha forget": DESTROYS,
    "message get": READS,
    "message query": READS,
    "lock list": READS,
    "lock release": DESTROYS,
    "dlq list": READS,
    "dlq show": READS,
    "dlq resend": DESTROYS,  # nothing takes a sent message back
    "dlq export": LOCAL,
    "dlq purge": DESTROYS,
    "transaction list": READS,
    "transaction end": DESTROYS,
    "transaction resume": ADDS,
    "retry-store list": READS,
    "retry-store show": READS,
    "retry-store drain": ADDS,
    "retry-store purge": DESTROYS,
    "pipeline archive": LOCAL,
    "pipeline replay": ADDS,
    "pipeline dedupe": ADDS,
    "pipeline reconcile": LOCAL,
    "pipeline flow-control": LOCAL,
    "config convert": READS,
    "config live": READS,
    "config set": DESTROYS,  # asks where a change can delete messages or stop clients
    "config show": READS,
    "config template": READS,
    "tls init": LOCAL,
    "tls show": READS,
    "log verify": READS,
    "log dump": READS,
    "log export": LOCAL,
    "log backup": LOCAL,
    "log repair": LOCAL,  # shows its plan; --write carries it out, and keeps copies
    "doctor disk": LOCAL,
}
CONSENT: Final = ("--write", "--overwrite", "--force", "--waiting", "--accept-loss")
"""Options that allow what their command otherwise refuses or only plans: no file or message is lost without one."""
UNASKED: Final = {
    "ha promote": "asks only with --force: a planned promotion loses nothing",
    "ha demote": "asks only with --accept-loss or --force: what was never confirmed may go",
}
FORMER: Final = {"--begin", "--end", "--from-time", "--to-time", "--since", "--max", "--count"}
LONG_WITH_SHORT: Final = {
    "--topic": "-t",
    "--group": "-g",
    "--broker": "-b",
    "--limit": "-n",
    "--yes": "-y",
    "--output": "-o",
    "--message": "-m",
    "--follow": "-f",
    "--data-dir": "-d",
    "--config": "-c",
}
OTHERWISE: Final = {("-n", "bench"): "messages of a case, no limit", ("-t", "pipeline replay"): "--to-topic"}


def options_of(name: str) -> list[Any]:
    """Return the options that the help of a command shows."""
    return [
        each
        for each in LEAVES[name].params
        if each.param_type_name == "option" and not getattr(each, "hidden", False) and each.name != "help"
    ]


def test_every_command_has_an_effect() -> None:
    """A command without an entry, or an entry without its command, is a mistake."""
    assert LEAVES.keys() == EFFECTS.keys()


@pytest.mark.parametrize("name", LEAVES)
def test_arguments_and_options_have_the_words_of_all_commands(name: str) -> None:
    """A short option stands for one long one; former names are in no help; a place for a value is in capitals."""
    shorts = {short: long for long, short in LONG_WITH_SHORT.items()}
    for parameter in LEAVES[name].params:
        if parameter.param_type_name == "argument":
            shown = parameter.metavar or ""
            assert any(map(str.isupper, shown)), f"{parameter.name} is shown as {shown!r}"
    for option in options_of(name):
        longs = [each for each in option.opts if each.startswith("--")]
        assert not FORMER & set(option.opts)
        assert not [each for each in longs if each.startswith("--timeout-")]
        for short in [each for each in option.opts if not each.startswith("--")]:
            if short in shorts and (short, name) not in OTHERWISE:
                assert longs[0] == shorts[short]
        for long in longs:
            if long in LONG_WITH_SHORT and (name, long) not in {("doctor", "--broker")}:
                assert LONG_WITH_SHORT[long] in option.opts, f"{long} without {LONG_WITH_SHORT[long]}"


def test_one_meaning_for_each_short_option() -> None:
    """``-q`` was a number of queues in one command, and a queue in another."""
    meanings = defaultdict(set)
    for name in LEAVES:
        for option in options_of(name):
            for short in [each for each in option.opts if not each.startswith("--")]:
                if (short, name) not in OTHERWISE:
                    meanings[short].add(next(each for each in option.opts if each.startswith("--")))
    assert {short: longs for short, longs in meanings.items() if len(longs) > 1} == {}


@pytest.mark.parametrize("name", [name for name, effect in EFFECTS.items() if effect == DESTROYS])
def test_what_destroys_can_be_confirmed_by_a_script(name: str) -> None:
    assert any("--yes" in option.opts for option in options_of(name))


@pytest.mark.parametrize("name", [name for name, effect in EFFECTS.items() if effect != DESTROYS])
def test_what_asks_is_called_destructive(name: str) -> None:
    """And an option whose help speaks of loss or removal is one of those that give consent."""
    for option in options_of(name):
        assert "--yes" not in option.opts
        text = (option.help or "").lower()
        if any(word in text for word in ("are then lost", "remove the", "replace ", "cut ", "hides messages")):
            assert set(option.opts) & set(CONSENT), f"{option.opts}: {option.help}"


@pytest.fixture(scope="module")
def broker() -> Iterator[PocketBroker]:
    """A broker with a topic of two messages, and a group that has read them."""
    with PocketBroker() as running:
        with Producer("writer", running.namesrv) as producer:
            for body in (b"1", b"2"):
                producer.send(Message("Kept", body))
        yield running


RUNS: Final = {
    "topic purge": ("Kept",),
    "topic delete": ("Kept",),
    "group seek": ("kept", "--topic", "Kept", "--to", "latest"),
    "group delete": ("kept",),
    "ha promote": ("pocket", "--force"),
    "ha demote": ("pocket", "--force"),
    "ha accept-loss": ("pocket",),
    "ha forget": ("pocket",),
    "user delete": ("app",),
    "acl delete": ("app",),
    "acl import": ("plain_acl.yml",),
    "lock release": ("--group", "kept", "--topic", "Kept", "--queue", "0"),
    "dlq resend": ("kept", "--all"),
    "dlq purge": ("kept",),
    "transaction end": ("--group", "gone", "--commit"),
    "retry-store purge": ("rocksdb://store",),
    "config set": ("file_reserved_time=1",),
}
"""A command line of every command that destroys."""
NOTHING_THERE: Final = {"acl import", "lock release", "dlq resend", "dlq purge", "transaction end", "retry-store purge"}
"""There is nothing to destroy here: their own tests have it."""


def test_each_command_that_destroys_is_run() -> None:
    assert RUNS.keys() == {name for name, effect in EFFECTS.items() if effect == DESTROYS}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in RUNS if name not in NOTHING_THERE])
def test_without_yes_a_script_destroys_nothing(name: str, run_command: RunCommand, broker: PocketBroker) -> None:
    """One line, exit code 2, and topic, messages, group and offsets are as before."""
    env = {"POCKETMQ_NAMESRV": broker.namesrv}
    seek = ("group", "seek", "kept", "--topic", "Kept", "--to", "earliest", "--create", "--yes")
    assert run_command(*seek, env=env).returncode == 0

    def state() -> Any:
        group = json.loads(run_command("group", "describe", "kept", "--json", env=env).stdout)
        topic = json.loads(run_command("topic", "describe", "Kept", "--json", env=env).stdout)
        return group["queues"], topic

    before = state()
    done = run_command(*name.split(), *RUNS[name], env=env)
    assert done.returncode == 2
    assert done.stderr.decode().endswith(": there is no terminal to ask for confirmation (scripts say --yes)\n"), (
        done.stderr
    )
    assert done.stderr.count(b"\n") == 1
    assert state() == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("topic", "create", "Kept", "-q", "1"), 1),
        (("topic", "create", "Kept", "--perm", "R"), 1),
        (("topic", "create", "Kept", "-q", "1", "--if-not-exists"), 0),
        (("topic", "create", "Kept"), 0),
        (("produce", "Kept", "-m", "3"), 0),
        (("consume", "Kept", "--group", "kept"), 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_what_adds_changes_no_settings(
    words: tuple[str, ...], code: int, run_command: RunCommand, broker: PocketBroker
) -> None:
    """Whatever adds or creates leaves the settings of topics as they are."""

    def settings() -> Any:
        async def ask() -> Any:
            async with Admin(broker.namesrv) as admin:
                return await admin.topic_settings("Kept", await admin.masters())

        return asyncio.run(ask())

    before = settings()
    assert run_command(*words, env={"POCKETMQ_NAMESRV": broker.namesrv}).returncode == code
    assert settings() == before


@pytest.mark.slow
def test_an_answer_other_than_yes_destroys_nothing(
    run_command: RunCommand, broker: PocketBroker, tmp_path: Path
) -> None:
    """On a terminal the question names what goes, and only y goes on."""
    main, side = pty.openpty()
    command = [*COMMAND, "topic", "delete", "Kept"]
    env = environment({"POCKETMQ_NAMESRV": broker.namesrv})
    with interruptible():
        process = subprocess.Popen(command, stdin=side, stdout=subprocess.PIPE, stderr=side, env=env, cwd=tmp_path)
    os.close(side)
    os.write(main, b"n\n")
    out, _ = process.communicate(timeout=60)
    os.close(main)
    assert process.returncode == 1
    assert b"Delete topic Kept and its" in out
    assert b"Kept" in run_command("topic", "list", env={"POCKETMQ_NAMESRV": broker.namesrv}).stdout
