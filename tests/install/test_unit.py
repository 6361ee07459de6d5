"""The unit for systemd: it is valid, hardened, and starts where systemd runs."""

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pocketmq.broker.config import BrokerConfig
from pocketmq.cli.daemon.plain_arguments import plain_start
from pocketmq.cli.exit_codes import ExitCode

UNIT = Path(__file__).resolve().parents[2] / "conf" / "systemd" / "pocketmq.service"
EXPOSURE_MAX = 2.0
"""Of 10: ``systemd-analyze security`` calls 2.0 and less OK."""


def option(name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)


def analyze(*arguments: str) -> "subprocess.CompletedProcess[str]":
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_its_command_and_limits_are_those_of_the_server() -> None:
    """Its command is understood; a stop has more time than the broker takes; wrong settings are not tried again."""
    [command] = option("ExecStart")
    program, *arguments = command.removesuffix(" $OPTIONS").split()
    assert program == "/opt/pocketmq/bin/pocketmq"
    start = plain_start(arguments, {})
    assert start is not None
    assert start.values["--data-dir"] == "%S/pocketmq"
    assert option("Type") == ["notify"]
    assert option("User") == ["pocketmq"]
    assert int(option("TimeoutStopSec")[0]) > BrokerConfig().shutdown_timeout_mills / 1000
    assert option("RestartPreventExitStatus") == [str(int(ExitCode.USAGE))]


def test_systemd_finds_no_fault_in_it(tmp_path: Path) -> None:
    """With a program that is there."""
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/pocketmq/bin/pocketmq", "/bin/true"))
    done = analyze("verify", "--man=no", str(unit))
    assert (done.returncode, done.stderr.strip()) == (0, "")
    parser = configparser.RawConfigParser(strict=False, delimiters="=")
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNIT)
    assert parser.sections() == ["Unit", "Service", "Install"]


def test_it_is_hardened() -> None:
    done = analyze("security", "--offline=true", str(UNIT))
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze reads no unit files")
    exposure = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert exposure is not None, done.stderr
    assert float(exposure[1]) <= EXPOSURE_MAX
