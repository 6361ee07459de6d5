"""The short parser of the servers' arguments, beside typer: the same servers, or left to typer."""

import gc
from collections.abc import Sequence
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.cli.app import RootOptions, build_app
from pocketmq.cli.daemon import daemon
from pocketmq.cli.daemon.daemon import Shape
from pocketmq.cli.daemon.daemon_settings import SETTINGS_OF
from pocketmq.cli.daemon.plain_arguments import (
    CONFIG,
    FLAGS,
    PORT_OPTIONS,
    PROFILE,
    SET,
    SHORT,
    VARIABLES,
    plain_start,
)

Run = tuple[Shape, dict[str, dict[str, object]], str | None, list[str], str | None]
"""The arguments of ``run_daemon``."""


class Runs:
    """Stands for ``run_daemon``."""

    def __init__(self) -> None:
        self.calls: list[Run] = []

    def __call__(
        self, shape: Shape, options: Any, config_file: str | None, flags: Sequence[str], profile: str | None
    ) -> None:
        self.calls.append((shape, options, config_file, list(flags), profile))


@pytest.fixture(scope="module")
def runs() -> Any:
    """What the servers would be started with."""
    with pytest.MonkeyPatch.context() as patch:
        runs = Runs()
        patch.setattr(daemon, "run_daemon", runs)
        patch.setattr(gc, "freeze", lambda: None)
        patch.delenv("POCKETMQ_NAMESRV", raising=False)
        yield runs


def by_typer(runs: Runs, arguments: Sequence[str]) -> Run | None:
    """Return what typer starts; None: it refuses."""
    runs.calls.clear()
    try:
        build_app(RootOptions())(list(arguments), prog_name="pocketmq")
    except SystemExit:  # of a success, too
        pass
    return runs.calls[0] if runs.calls else None


def by_plain(runs: Runs, arguments: Sequence[str], environment: dict[str, str]) -> Run | None:
    runs.calls.clear()
    start = plain_start(arguments, environment)
    if start is None:
        return None
    start.run()
    return runs.calls[0]


def options_of(command: str) -> dict[str, Any]:
    """Return typer's options of a command, without ``--help``."""
    group: Any = typer.main.get_command(build_app(RootOptions()))
    found = group.commands[command]
    return {max(each.opts, key=len): each for each in found.params if each.name != "help"}


@pytest.mark.parametrize("command", SETTINGS_OF)
def test_typer_has_the_same_options(command: str) -> None:
    """A new option that only one of them knows fails here."""
    options = options_of(command)
    stores = {PROFILE} if command != "namesrv" else set()
    assert options.keys() == {*SETTINGS_OF[command], CONFIG, SET, *stores}
    short = {opt: name for name, option in options.items() for opt in option.opts if not opt.startswith("--")}
    assert short == {opt: name for opt, name in SHORT.items() if name in options}
    assert {name for name, option in options.items() if option.is_flag} == {each for each in FLAGS if each in options}
    assert {name for name, option in options.items() if option.multiple} == {SET}
    assert {name for name in options if name.endswith("-port")} == {name for name in PORT_OPTIONS if name in options}
    variables = {name: option.envvar for name, option in options.items() if option.envvar}
    assert variables == {name: variable for name, variable in VARIABLES.items() if name in options}


WORDS = st.sampled_from(
    [
        *["--data-dir", "-d", "--namesrv", "--namesrv-port", "--broker-port", "--host", "--config", "-c", "--set"],
        *[
            "--log-format",
            "--log-level",
            "--accept-loss",
            "--profile",
            "small",
            "--data-dir=x",
            "--broker-port=1",
            "--set=a.b=c",
            "-dx",
            "--",
        ],
        *[
            "0",
            "65535",
            "65536",
            "-1",
            "1_0",
            "٣",
            "",
            " 7",
            "x",
            "a.b=c",
            "--help",
            "-h",
            "--no-such",
            "--accept-loss=",
        ],
    ]
)


@pytest.mark.slow
@given(st.sampled_from([*SETTINGS_OF, "produce"]), st.lists(WORDS, max_size=6))
def test_what_is_plain_starts_the_same_server(runs: Runs, command: str, words: list[str]) -> None:
    plain = by_plain(runs, [command, *words], {})
    assert plain is None or plain == by_typer(runs, [command, *words])


@pytest.mark.parametrize(
    "arguments",
    [
        ["standalone"],
        ["standalone", "-d", "x", "--namesrv-port", "0", "--broker-port=0", "--set", "a.b=c", "--set=d.e=f"],
        ["standalone", "--profile", "small"],
        ["namesrv", "-d", "x", "--host", "h", "--config", "f.toml", "--log-format", "json", "--log-level", "warning"],
        ["broker", "--namesrv", "h:1", "--accept-loss", "-c", "f.toml", "--data-dir", "a", "--data-dir", "b"],
    ],
)
def test_usual_arguments_are_plain(runs: Runs, arguments: list[str]) -> None:
    plain = by_plain(runs, arguments, {})
    assert plain is not None
    assert plain == by_typer(runs, arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["produce", "T"],
        ["--debug", "broker"],
        ["broker", "--help"],
        ["broker", "--broker-port", "65536"],
        ["broker", "--broker-port"],
        ["broker", "--data-dir", "-x"],
        ["namesrv", "--broker-port", "1"],
        ["broker", "x"],
    ],
)
def test_everything_else_is_left_to_typer(arguments: list[str]) -> None:
    assert plain_start(arguments, {}) is None


def test_variables(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The option wins over its variable; with POCKETMQ_DEBUG typer starts the server."""
    monkeypatch.setenv("POCKETMQ_NAMESRV", "h:2")
    for arguments in (["broker"], ["broker", "--namesrv", "h:1"], ["standalone"]):
        plain = by_plain(runs, arguments, {"POCKETMQ_NAMESRV": "h:2"})
        assert plain is not None
        assert plain == by_typer(runs, arguments)
    assert plain_start(["broker"], {"POCKETMQ_DEBUG": "1"}) is None
