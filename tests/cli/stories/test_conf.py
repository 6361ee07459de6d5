"""The files in ``conf/`` are valid settings, and fit together."""

from pathlib import Path

import pytest

from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import BrokerConfig
from pocketmq.cli.daemon.daemon import load_settings
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.store.config import StoreConfig

CONF = Path(__file__).resolve().parents[3] / "conf"
FILES = sorted(CONF.rglob("*.toml"))


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(CONF)) for path in FILES])
def test_every_file_is_accepted(path: Path) -> None:
    """No unknown key, no impossible value, and a broker can be built from it."""
    settings = load_settings({}, str(path), [], {})
    settings.get(NamesrvConfig)
    BrokerApp(settings.get(BrokerConfig), settings.get(StoreConfig))


def of(path: str) -> tuple[BrokerConfig, StoreConfig]:
    """Return the settings of one file."""
    settings = load_settings({}, str(CONF / path), [], {})
    return settings.get(BrokerConfig), settings.get(StoreConfig)


def test_a_pair_shares_its_name_and_counts_alike() -> None:
    """Master and slave: one name, two ids, two ports with room for the HA port, the same copies."""
    master, master_store = of("sync-pair/broker-a-master.toml")
    slave, slave_store = of("sync-pair/broker-a-slave.toml")
    assert master.broker_name == slave.broker_name
    assert (master.broker_id, slave.broker_id) == (0, 1)
    assert (master_store.broker_role, slave_store.broker_role) == ("SYNC_MASTER", "SLAVE")
    assert master_store.store_path_root_dir != slave_store.store_path_root_dir
    assert slave.listen_port > master.listen_port + 1
    for key in ("in_sync_replicas", "total_replicas", "mapped_file_size_commit_log"):
        assert getattr(master_store, key) == getattr(slave_store, key)


def test_two_masters_differ() -> None:
    """Two names, two ports, two stores, one name server."""
    (one, one_store), (two, two_store) = of("two-masters/broker-a.toml"), of("two-masters/broker-b.toml")
    assert one.broker_name != two.broker_name
    assert two.listen_port > one.listen_port + 1
    assert one_store.store_path_root_dir != two_store.store_path_root_dir
    assert one.namesrv_addr == two.namesrv_addr
