"""The plan of a cluster of masters: names, ports, directories, arguments, and what is refused."""

from itertools import pairwise
from pathlib import Path

import pytest

from pocketmq.cli.daemon.masters_plan import Addresses, MastersPlan, letters, plan_masters
from pocketmq.common.errors import ConfigError

DIRECTORY = Path("/data")
PORTS = Addresses("127.0.0.1", 9876, 10911)


def plan(masters: int, slaves: int = 0, addresses: Addresses = PORTS, *settings: str) -> MastersPlan:
    return plan_masters(masters, slaves, DIRECTORY, addresses, settings)


def sets_of(arguments: tuple[str, ...]) -> dict[str, str]:
    words = [word for before, word in pairwise(arguments) if before == "--set"]
    return dict(word.split("=", 1) for word in words)


def test_names_ports_and_directories() -> None:
    made = plan(2, 1)
    rows = [(each.name, each.role, each.stage, each.port, str(each.directory)) for each in made.processes]
    assert rows == [
        ("namesrv", "NAME_SERVER", 0, 9876, "/data/namesrv"),
        ("broker-a-0", "ASYNC_MASTER", 1, 10911, "/data/broker-a-0"),
        ("broker-a-1", "SLAVE", 2, 10921, "/data/broker-a-1"),
        ("broker-b-0", "ASYNC_MASTER", 1, 10931, "/data/broker-b-0"),
        ("broker-b-1", "SLAVE", 2, 10941, "/data/broker-b-1"),
    ]


def test_a_slave_has_its_masters_name_and_an_id_of_its_own() -> None:
    sets = [sets_of(each.arguments) for each in plan(1, 2).processes[1:]]
    assert [each["broker.broker_name"] for each in sets] == ["broker-a"] * 3
    assert [each["broker.broker_id"] for each in sets] == ["0", "1", "2"]
    assert {each["store.total_replicas"] for each in sets} == {"3"}


def test_the_role_of_the_masters_is_not_the_slaves() -> None:
    made = plan(1, 1, PORTS, "store.broker_role=SYNC_MASTER", "store.flush_disk_type=SYNC_FLUSH")
    sets = [sets_of(each.arguments) for each in made.processes[1:]]
    assert [each["store.broker_role"] for each in sets] == ["SYNC_MASTER", "SLAVE"]
    assert {each["store.flush_disk_type"] for each in sets} == {"SYNC_FLUSH"}


def test_the_name_server_gets_the_settings_of_the_log_only() -> None:
    arguments = plan(1, 0, PORTS, "log.level=warning", "store.flush_disk_type=SYNC_FLUSH").processes[0].arguments
    assert sets_of(arguments).keys() == {"namesrv.epoch_store_dir", "log.level"}


def test_a_restart_uses_the_port_that_the_first_start_got() -> None:
    free = plan(1, 1, Addresses("127.0.0.1", 0, 0)).processes
    assert {each.port for each in free} == {0}
    assert free[1].command("host:1")[-4:] == ["--namesrv", "host:1", "--broker-port", "0"]
    assert free[1].command("host:1", 4711)[-4:] == ["--namesrv", "host:1", "--broker-port", "4711"]
    assert free[0].command("", 4712)[-2:] == ["--namesrv-port", "4712"]
    assert sets_of(free[1].arguments)["store.ha_listen_port"] == "-1"


def test_metrics_ports() -> None:
    assert [sets_of(each.arguments)["metrics.listen_port"] for each in plan(2).processes[1:]] == ["0", "0"]
    made = plan(2, 0, Addresses("127.0.0.1", 9876, 10911, 5557))
    assert [sets_of(each.arguments)["metrics.listen_port"] for each in made.processes[1:]] == ["5557", "5567"]


def test_the_largest_cluster_has_no_two_brokers_alike() -> None:
    made = plan(64, 15)
    assert len({each.name for each in made.processes}) == len({each.port for each in made.processes}) == 64 * 16 + 1


def test_letters() -> None:
    assert [letters(number) for number in (0, 25, 26, 63)] == ["a", "z", "aa", "bl"]


def test_stores_that_the_plan_leaves_out() -> None:
    entries = ["broker-a-0", "broker-b-0", "broker-c-0", "broker-a-1", "namesrv", "broker-a-0.log", "notes"]
    assert plan(2).left_out(entries) == ["broker-a-1", "broker-c-0"]


@pytest.mark.parametrize(
    ("masters", "slaves", "addresses", "settings", "why"),
    [
        (0, 0, PORTS, (), "--masters 0"),
        (65, 0, PORTS, (), "--masters 65"),
        (1, 16, PORTS, (), "--slaves-per-master 16"),
        (1, -1, PORTS, (), "--slaves-per-master -1"),
        (64, 0, Addresses("h", 9876, 65_000), (), "--broker-port 65000 with 64 brokers would need port 65631"),
        (2, 0, Addresses("h", 9876, 10911, 65_530), (), "--metrics-port 65530 with 2 brokers would need port 65540"),
        (2, 0, Addresses("h", 10921, 10911), (), "port 10921 would be the name server's and that of broker 2"),
        (2, 0, Addresses("h", 10912, 10911), (), "port 10912 would be the name server's and the HA port of broker 1"),
        (
            2,
            0,
            Addresses("h", 9876, 10911, 10901),
            (),
            "that of broker 1 and the metrics port of broker 2",
        ),
        (1, 0, PORTS, ("broker.broker_name=x",), "broker.broker_name=x for all brokers"),
        (1, 0, PORTS, (" log.file = x",), "for all brokers"),
        (1, 1, PORTS, ("store.broker_role=SLAVE",), "store.broker_role=SLAVE"),
        (1, 0, PORTS, ("store.broker_role=SYNC_MASTER",), "without a slave"),
    ],
)
def test_refused(masters: int, slaves: int, addresses: Addresses, settings: tuple[str, ...], why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        plan(masters, slaves, addresses, *settings)
    assert why in str(refused.value)
    assert refused.value.hint
