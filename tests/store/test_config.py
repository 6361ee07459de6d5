"""Settings of the store that contradict each other."""

import msgspec
import pytest

from pocketmq.common.errors import ConfigError
from pocketmq.store.config import StoreConfig


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"flush_disk_type": "SYNC_FLUSH"}, "flush_disk_type=SYNC_FLUSH: the pool acknowledges from memory"),
        ({"broker_role": "SLAVE"}, "broker_role=SLAVE: a slave confirms"),
        ({"transient_store_pool_size": 0}, "transient_store_pool_size=0"),
        ({"commit_interval_commit_log": 0}, "commit_interval_commit_log=0"),
        ({"commit_commit_log_least_pages": -1}, "commit_commit_log_least_pages=-1"),
        ({"commit_commit_log_thorough_interval": -5}, "commit_commit_log_thorough_interval=-5"),
        ({"os_page_cache_busy_timeout_mills": 0}, "os_page_cache_busy_timeout_mills=0"),
    ],
)
def test_a_pool_that_makes_no_sense_stops_the_start(changes: dict[str, object], why: str) -> None:
    """The error names the settings and the reason."""
    with pytest.raises(ConfigError, match=why):
        msgspec.convert({"transient_store_pool_enable": True} | changes, StoreConfig)


def test_a_warm_up_of_segments_that_are_not_mapped_stops_the_start() -> None:
    """There is no memory to warm up."""
    with pytest.raises(ConfigError, match="no segment is mapped"):
        StoreConfig(warm_maped_file_enable=True, append_mode="written")


@pytest.mark.parametrize("append_mode", ["mapped", "written"])
def test_a_pool_goes_with_both_ways_of_writing(append_mode: str) -> None:
    """The mode decides how segments without a buffer are written."""
    assert msgspec.convert({"transient_store_pool_enable": True, "append_mode": append_mode}, StoreConfig)


NUMBERS = [
    field.name
    for field in msgspec.structs.fields(StoreConfig)
    if field.type is int and not field.name.startswith("mapped_file_size")
]


@pytest.mark.parametrize("key", NUMBERS)
@pytest.mark.parametrize("value", [-2, 1 << 62])
def test_a_number_that_nobody_can_mean_stops_the_start(key: str, value: int) -> None:
    """It would fail late: a thread without memory, a wait without an end, a file too large for any disk."""
    with pytest.raises(ConfigError, match=f"store.{key}={value}") as caught:
        msgspec.convert({key: value}, StoreConfig)
    assert "from" in caught.value.hint


@pytest.mark.parametrize("value", [0, 30, 1 << 40])
def test_a_consume_queue_file_holds_whole_entries_and_fits_a_disk(value: int) -> None:
    """Its size is checked like that of a segment."""
    with pytest.raises(ConfigError, match="mapped_file_size_consume_queue"):
        StoreConfig(mapped_file_size_consume_queue=value)


@pytest.mark.parametrize(("in_sync", "total"), [(1, 2), (3, 2), (1, 1), (2, 1)])
def test_a_synchronous_master_waits_for_a_number_of_slaves_that_there_can_be(in_sync: int, total: int) -> None:
    """A master that waits for no slave, or for ever, is not synchronous."""
    with pytest.raises(ConfigError, match=f"in_sync_replicas={in_sync} and total_replicas={total}"):
        StoreConfig(broker_role="SYNC_MASTER", in_sync_replicas=in_sync, total_replicas=total)
    assert StoreConfig(broker_role="ASYNC_MASTER", in_sync_replicas=in_sync, total_replicas=total)


def test_a_synchronous_master_waits_for_one_slave_unless_told_otherwise() -> None:
    """As RocketMQ 4.9 does."""
    config = StoreConfig(broker_role="SYNC_MASTER")
    assert (config.in_sync_replicas, config.total_replicas, config.slave_timeout) == (2, 2, 3000)
    assert StoreConfig(broker_role="SYNC_MASTER", in_sync_replicas=3, total_replicas=5)


def test_heartbeats_come_more_often_than_connections_are_closed_for_silence() -> None:
    """Otherwise an idle slave would disconnect again and again."""
    with pytest.raises(ConfigError, match="before its next heartbeat"):
        StoreConfig(ha_send_heartbeat_interval=20_000)


def test_addresses_of_rocketmq_slaves_are_checked_at_the_start() -> None:
    """Addresses and networks of both families; a name is refused, and so is a network with host bits."""
    networks = StoreConfig(ha_rocketmq_allowed_slaves=" 10.0.0.7; 10.1.0.0/16 ;2001:db8::/32").rocketmq_slave_networks()
    assert [str(network) for network in networks] == ["10.0.0.7/32", "10.1.0.0/16", "2001:db8::/32"]
    assert StoreConfig().rocketmq_slave_networks() == ()
    for wrong in ("localhost", "10.1.0.1/16", "10.0.0.7,10.0.0.8"):
        with pytest.raises(ConfigError, match="ha_rocketmq_allowed_slaves"):
            StoreConfig(ha_rocketmq_allowed_slaves=wrong)


def test_settings_of_rocketmqs_files_without_meaning_here_are_known() -> None:
    """A file with RocketMQ's names stays readable."""
    settings = {
        "flush_consume_queue_least_pages": 4,
        "flush_consume_queue_thorough_interval": 0,
        "default_query_max_num": 64,
        "max_msgs_num_batch": 128,
    }
    assert msgspec.convert(settings, StoreConfig).max_msgs_num_batch == 128


@pytest.mark.parametrize("path", ["", "shm", "/dev/shm\0", "/" + "x" * 1024])
def test_the_path_of_write_buffers_is_absolute(path: str) -> None:
    """Or the word for none."""
    with pytest.raises(ConfigError, match=r"store\.transient_store_pool_path="):
        StoreConfig(transient_store_pool_path=path)
    assert not StoreConfig(transient_store_pool_enable=True, transient_store_pool_path="anonymous").pool_survives
    assert StoreConfig(transient_store_pool_enable=True).pool_survives


@pytest.mark.parametrize("size", [-4096, 4095, (1 << 30) + 4096])
def test_a_write_buffer_is_whole_pages_of_at_most_a_segment(size: int) -> None:
    """0 is the size of a segment."""
    with pytest.raises(ConfigError, match=r"store\.transient_store_pool_buffer_size="):
        StoreConfig(transient_store_pool_buffer_size=size)
    assert StoreConfig().pool_buffer_bytes == 1 << 30
    assert StoreConfig(transient_store_pool_buffer_size=4096).pool_buffer_bytes == 4096
