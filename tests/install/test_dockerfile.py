"""The Dockerfile and the compose file as texts: what holds without building anything."""

import re
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.assembly.advertised import advertised_addresses
from pocketmq.broker.config import BrokerConfig
from pocketmq.cli.daemon.access import check_access
from pocketmq.cli.daemon.daemon import load_settings
from pocketmq.cli.daemon.daemon_settings import given_settings
from pocketmq.cli.daemon.plain_arguments import PlainStart, plain_start
from pocketmq.cli.dashboard.command import PORT
from pocketmq.cli.exit_codes import CannotStart
from pocketmq.common.settings import Settings
from pocketmq.namesrv.config import NamesrvConfig
from tests.install.dockerfile import context_files, instructions

ROOT = Path(__file__).resolve().parents[2]
STEPS = list(instructions((ROOT / "Dockerfile").read_text()))


def steps(name: str) -> list[str]:
    return [rest for each, rest in STEPS if each == name]


def settings_of(start: PlainStart, environment: dict[str, str]) -> Settings:
    return load_settings(given_settings(start.command, start.values), start.config, start.sets, environment)


def test_the_user_of_the_image_is_not_root_and_has_a_number() -> None:
    """Kubernetes' runAsNonRoot asks for a number."""
    assert re.fullmatch(r"([1-9]\d*):\1", steps("USER")[-1])
    assert steps("VOLUME") == ["/data"]
    assert steps("STOPSIGNAL") == ["SIGTERM"]
    names = [name for name, _ in STEPS]
    assert names.index("USER") > max(at for at, name in enumerate(names) if name in ("RUN", "COPY"))


def test_the_image_does_not_start_for_strangers_unless_someone_says_so() -> None:
    """Its command listens on all addresses; without users, or --open, the server refuses."""
    import json

    arguments = json.loads(steps("CMD")[-1])
    start = plain_start(arguments, {})
    assert start is not None
    with pytest.raises(CannotStart, match="lets other machines connect"):
        check_access(settings_of(start, {}), namesrv=True, broker=True)
    opened = plain_start([*arguments, "--open", "--advertise", "localhost"], {})
    assert opened is not None
    check_access(settings_of(opened, {}), namesrv=True, broker=True)


def test_the_context_has_what_the_wheel_needs_and_nothing_else() -> None:
    files = {path.as_posix() for path in context_files(ROOT)}
    assert {"pyproject.toml", "setup.py", "MANIFEST.in", "auth/__init__.py", "src/pocketmq/auth"} <= files
    packages = [path for path in (ROOT / "src" / "pocketmq").iterdir() if path.is_symlink() and path.is_dir()]
    assert packages
    for package in packages:
        assert f"src/pocketmq/{package.name}" in files
        assert any(name.startswith(f"{package.resolve().name}/") for name in files), f"{package.name} leads nowhere"
    assert not [name for name in files if "__pycache__" in name or name.startswith(("tests", ".git", ".venv", "dist"))]


yaml = pytest.importorskip("yaml", reason="PyYAML comes with pocketmq[acl-import]")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
OURS = [name for name, service in COMPOSE["services"].items() if service["image"] == "pocketmq"]
SERVERS = [name for name in OURS if name != "dashboard"]


def started(name: str) -> tuple[PlainStart, Settings]:
    service = COMPOSE["services"][name]
    start = plain_start(service["command"], {})
    assert start is not None, f"{name}: {service['command']} is left to typer"
    return start, settings_of(start, {**service.get("environment", {})})


@pytest.mark.parametrize("name", SERVERS)
def test_each_service_of_the_compose_file_would_start(name: str) -> None:
    start, settings = started(name)
    check_access(settings, namesrv=start.command != "broker", broker=start.command != "namesrv")
    published = COMPOSE["services"][name]["ports"]
    assert all(each.startswith("127.0.0.1:") for each in published), "only this machine may connect"
    if start.command == "namesrv":
        ports = dict(each.removeprefix("127.0.0.1:").split(":") for each in published)
        assert settings.get(NamesrvConfig).named_listeners()["host"] == ("0.0.0.0", int(ports["9876"]))
        return
    config = settings.get(BrokerConfig)
    advertised = advertised_addresses(config)
    assert advertised.address(config.listen_port) == f"{name}:10911"
    host, port = advertised.by_listener["host"]
    assert f"{host}:{port}:{config.listen_port}" in published
    assert config.name_servers() == [f"namesrv:{NamesrvConfig().listen_port}"]


def test_the_dashboard_of_the_compose_file_is_for_this_machine_and_changes_nothing() -> None:
    service = COMPOSE["services"]["dashboard"]
    assert service["command"][0] == "dashboard"
    assert "--allow-writes" not in service["command"]
    assert service["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
    assert str(PORT) in service["healthcheck"]["test"]
    assert str(PORT) in steps("EXPOSE")[-1].split()


def test_the_compose_file_has_a_synchronous_pair_and_its_metrics() -> None:
    roles = {}
    for name in SERVERS:
        start, settings = started(name)
        if start.command == "broker":
            from pocketmq.store.config import StoreConfig

            roles[name] = settings.get(StoreConfig).broker_role, settings.get(BrokerConfig).broker_id
    assert roles == {"broker-a": ("SYNC_MASTER", 0), "broker-a-slave": ("SLAVE", 1)}
    scraped = yaml.safe_load(COMPOSE["configs"]["prometheus"]["content"])["scrape_configs"][0]
    assert scraped["static_configs"][0]["targets"] == [f"{name}:5557" for name in roles]
