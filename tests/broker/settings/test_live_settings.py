"""Which settings can change, and what becomes of a change at the next start."""

from typing import Any

import msgspec
import pytest

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.settings.live_settings import SECTIONS, LiveSettings, NotLive, live_names
from pocketmq.common.errors import ConfigError
from pocketmq.common.logs import CapturedLog, LogConfig
from pocketmq.store.config import StoreConfig


def started(kept: bytes = b"", **store: Any) -> tuple[LiveSettings, StoreConfig, BrokerConfig, CapturedLog]:
    """Return the settings of a start, with what an earlier one has kept."""
    log, store_config, config = CapturedLog(), StoreConfig(store_path_root_dir="/s", **store), BrokerConfig()
    live = LiveSettings(log, lambda: 7)
    if kept:
        live.load(kept)
    live.use({"broker": (config,), "store": (store_config,), "log": (LogConfig(),)})
    return live, store_config, config, log


def test_every_name_is_a_setting() -> None:
    for name in live_names():
        section, _, key = name.partition(".")
        assert key in SECTIONS[section].__struct_fields__, name


def test_a_change_in_either_spelling() -> None:
    live, store, config, log = started()
    changes = live.change({"fileReservedTime": "48", "broker.auto_create_topic_enable": "false"}, by="ann")
    assert [(each.name, each.before, each.after) for each in changes] == [
        ("store.file_reserved_time", 72, 48),
        ("broker.auto_create_topic_enable", True, False),
    ]
    assert (store.file_reserved_time, config.auto_create_topic_enable) == (48, False)
    assert log.events[-1]["event"] == "setting_changed"
    assert log.events[-1]["by"] == "ann"
    assert live.change({"fileReservedTime": "48"}, by="bob") == [], "it has that value already"


def test_the_struct_of_the_role_changes_as_well() -> None:
    given, role = StoreConfig(store_path_root_dir="/s"), StoreConfig(store_path_root_dir="/s", broker_role="SLAVE")
    live = LiveSettings(CapturedLog(), lambda: 0)
    live.use({"broker": (BrokerConfig(),), "store": (given, role)})
    live.change({"flushIntervalCommitLog": "100"}, by="")
    assert (given.flush_interval_commit_log, role.flush_interval_commit_log) == (100, 100)
    with pytest.raises(NotLive, match=r"log\.level is read at the start"):
        live.change({"log.level": "debug"}, by="")


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (
            {"store.file_reserved_time": "48", "flush_disk_type": "SYNC_FLUSH"},
            "store.flush_disk_type is read at the start",
        ),
        ({"store.file_reserved_time": "48", "delete_when": "25"}, "delete_when='25'"),
        ({"store.file_reserved_time": "soon"}, "file_reserved_time='soon' is not"),
        ({"fileReservedTim": "48"}, "unknown key 'fileReservedTim'"),
        ({"store.file_reserved_time": "48", "broker.wait_time_mills_in_send_queue": "0"}, "at least 1|=0"),
        ({"store.delete_when": "1;" * 600}, "more than 1000 characters"),
        ({"store.file_reserved_time": "48", "log.levels": "store=loud"}, "store=loud"),
        ({"rocketmqHome": "$(reboot)"}, "unknown key"),
    ],
)
def test_all_or_none(values: dict[str, str], why: str) -> None:
    live, store, config, _ = started()
    with pytest.raises(ConfigError, match=why):
        live.change(values, by="")
    assert (store, config) == (StoreConfig(store_path_root_dir="/s"), BrokerConfig())
    assert live.kept == {}


def test_what_is_said_again_is_passed_over() -> None:
    live, _, _, _ = started()
    assert live.change({"flushDiskType": "ASYNC_FLUSH", "brokerName": "broker-a"}, by="") == []


def test_a_change_holds_over_a_start() -> None:
    live, _, _, _ = started()
    live.change({"fileReservedTime": "48"}, by="ann")
    again, store, _, log = started(live.encode())
    assert store.file_reserved_time == 48
    assert again.changed() == {"store.file_reserved_time": (48, 72, "ann")}
    assert log.events == []


def test_a_setting_that_was_configured_since_wins() -> None:
    live, _, _, _ = started()
    live.change({"fileReservedTime": "48"}, by="ann")
    again, store, _, log = started(live.encode(), file_reserved_time=24)
    assert store.file_reserved_time == 24
    assert again.changed() == {}
    assert [each["event"] for each in log.events] == ["changed_setting_forgotten"]
    assert "configured as 24 since then" in log.events[0]["why"]


def test_a_setting_that_is_configured_as_it_was_changed_is_the_configured_one() -> None:
    """Else the change would come back when the first value is configured again."""
    live, _, _, _ = started()
    live.change({"fileReservedTime": "48"}, by="ann")
    again, _, _, log = started(live.encode(), file_reserved_time=48)
    assert (again.changed(), again.generation, log.events) == ({}, 1, [])
    _, store, _, _ = started(again.encode())
    assert store.file_reserved_time == 72


def test_a_start_in_the_same_process_keeps_what_was_changed() -> None:
    """A change of the role starts again with structs in which the changes are set already."""
    live, store, config, _ = started()
    live.change({"fileReservedTime": "48"}, by="ann")
    live.load(live.encode())
    live.use({"broker": (config,), "store": (store,), "log": (LogConfig(),)})
    assert live.changed() == {"store.file_reserved_time": (48, 72, "ann")}


def test_a_value_that_is_illegal_by_now_is_forgotten() -> None:
    kept = (
        b'{"settings":{"store.delete_when":{"value":"99","instead_of":"04"},"store.gone":{"value":1,"instead_of":2}}}'
    )
    live, store, _, log = started(kept)
    assert store.delete_when == "04"
    assert live.changed() == {}
    assert [each["setting"] for each in log.events] == ["store.delete_when"]


def test_back_to_what_is_configured_leaves_nothing() -> None:
    live, store, _, _ = started()
    live.change({"fileReservedTime": "48"}, by="")
    live.change({"fileReservedTime": "72"}, by="")
    assert store.file_reserved_time == 72
    assert msgspec.json.decode(live.encode()) == {"settings": {}}
