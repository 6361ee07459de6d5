"""RocketMQ's broker.conf and namesrv.conf: what a daemon takes from them, and what it says about the rest."""

import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

from pocketmq.broker.config import BrokerConfig
from pocketmq.cli.daemon.daemon import DEFAULT_DATA_DIR, load_settings
from pocketmq.cli.daemon.rocketmq_conf import BROKER, CONVERTED, NAMESRV, SECTIONS_OF, kind_of, translate
from pocketmq.common.errors import ConfigError
from pocketmq.common.settings import Settings, rocketmq_name
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.remoting.server_config import ServerConfig
from pocketmq.store.config import StoreConfig

USUAL: Final = r"""
# conf/2m-2s-async/broker-a.properties with what operators add
brokerClusterName=DefaultCluster
brokerName=broker-b
brokerId=0
namesrvAddr=10.0.0.1\:9876;\
            10.0.0.2:9876
listenPort 10931
deleteWhen=04
fileReservedTime=48
brokerRole=SYNC_MASTER
flushDiskType=SYNC_FLUSH
storePathRootDir=/data/store
storePathCommitLog=/data/store/commitlog
transientStorePoolEnable=false
osPageCacheBusyTimeOutMills=2000
checkCRCOnRecover=false
brokerIP1=10.0.0.7
sendMessageThreadPoolNums=16
serverChannelMaxIdleTimeSeconds=60
popCkStayBufferTime=7
"""


def load(tmp_path: Path, text: str, name: str = "broker.conf", **options: Any) -> Settings:
    (tmp_path / name).write_text(text)
    return load_settings({}, str(tmp_path / name), [], {}, **options)


def test_a_usual_file_gives_its_settings(tmp_path: Path) -> None:
    settings = load(tmp_path, USUAL)
    broker, store = settings.get(BrokerConfig), settings.get(StoreConfig)
    assert (broker.broker_name, broker.broker_id, broker.listen_port) == ("broker-b", 0, 10931)
    assert broker.name_servers() == ["10.0.0.1:9876", "10.0.0.2:9876"]
    assert (broker.broker_ip1, broker.send_message_thread_pool_nums) == ("10.0.0.7", 1)
    assert (store.delete_when, store.file_reserved_time, store.broker_role) == ("04", 48, "SYNC_MASTER")
    assert (store.flush_disk_type, store.store_path_root_dir) == ("SYNC_FLUSH", "/data/store")
    assert (store.os_page_cache_busy_timeout_mills, store.check_crc_on_recover) == (2000, False)
    assert settings.get(ServerConfig).idle_ms_max == 60_000
    assert settings.get(NamesrvConfig) == load_settings({}, None, [], {}).get(NamesrvConfig)
    assert settings.origin("store", "file_reserved_time") == f"{tmp_path / 'broker.conf'} line 10"


def test_each_key_without_effect_gets_a_line_with_the_reason(tmp_path: Path) -> None:
    notes = load(tmp_path, USUAL + "flushDisktype=X\nzzz=1\n").notes
    name = str(tmp_path / "broker.conf")
    assert notes == (
        f"{name} line 14: storePathCommitLog has no effect: this store always has it in storePathRootDir",
        f"{name} line 19: sendMessageThreadPoolNums has no effect: "
        "at most 2 here, where one thread takes all the requests that wait at once",
        f"{name} line 21: popCkStayBufferTime has no effect: POP of RocketMQ 5 is not served",
        f"{name} line 22: flushDisktype has no effect: did you mean flushDiskType?",
        f"{name} line 23: zzz has no effect: no setting here is like it",
        f"{name}: no bindAddress: it listens on 127.0.0.1 only (RocketMQ: on every address)",
    )


def test_a_store_elsewhere_than_rocketmqs_is_said(tmp_path: Path) -> None:
    """Only where nothing gives it: ``--data-dir`` answers the question."""
    settings = load(tmp_path, "brokerName=a\nbindAddress=127.0.0.1\n")
    assert settings.get(StoreConfig).store_path_root_dir == DEFAULT_DATA_DIR
    assert [note.partition(": ")[2] for note in settings.notes] == [
        "no storePathRootDir: the store is ./pocketmq-data (RocketMQ: ~/store)"
    ]
    data_dir = {"--data-dir": {"store.store_path_root_dir": "/d"}}
    assert load_settings(data_dir, str(tmp_path / "broker.conf"), [], {}).notes == ()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("listenPort=x", "line 2: broker.listen_port='x' is not a whole number"),
        ("flushDiskType=sync", "line 2: store.flush_disk_type='sync' is not 'ASYNC_FLUSH' or 'SYNC_FLUSH'"),
        ("brokerId=-1", "line 2"),
        ("serverChannelMaxIdleTimeSeconds=a", "line 2: remoting.idle_ms_max='a'"),
        ("namesrvAddr=nowhere", "line 2"),
        ("aclEnable=true", "line 2: aclEnable=true: there is no access control here"),
        ("storeType=defaultRocksDB", "line 2: storeType"),
        ("enableDLegerCommitLog=true", "line 2: enableDLegerCommitLog=true"),
        ("storePathCommitLog=/other/commitlog", "line 2: storePathCommitLog=/other/commitlog"),
        ("storePathCommitLog=/s/commitlog:/t/commitlog", "line 2: storePathCommitLog"),
    ],
)
def test_what_cannot_hold_stops_the_start_with_file_and_line(tmp_path: Path, line: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, f"storePathRootDir=/s\n{line}\n")
    assert why in str(caught.value)
    assert str(tmp_path / "broker.conf") in str(caught.value)


@pytest.mark.parametrize("line", ["aclEnable=false", "enableDLegerCommitLog=false", "storeType=default"])
def test_what_is_off_does_not_stop_the_start(tmp_path: Path, line: str) -> None:
    assert any(line.partition("=")[0] in note for note in load(tmp_path, f"brokerName=a\n{line}\n").notes)


def test_the_limit_for_slaves_holds_only_with_rocketmqs_switch() -> None:
    limit = "maxHaTransferByteInSecond=1000\n"
    assert translate(limit, "f", BROKER).layer == {}
    assert ("store", "max_ha_transfer_byte_in_second") in translate(
        f"{limit}haFlowControlEnable=true", "f", BROKER
    ).layer


def test_namesrv_conf_is_the_name_servers(tmp_path: Path) -> None:
    text = "listenPort=9877\nscanNotActiveBrokerInterval=5000\nkvConfigPath=/x\n"
    for name, options in (("namesrv.conf", {}), ("any.conf", {"kind": NAMESRV})):
        settings = load(tmp_path, text, name, **options)
        config = settings.get(NamesrvConfig)
        assert (config.listen_port, config.scan_not_active_broker_interval) == (9877, 5000)
        assert settings.get(BrokerConfig).listen_port == 10911
        assert "kvConfigPath" in settings.notes[0]
    assert (kind_of("/etc/namesrv-1.conf"), kind_of("/namesrv/broker.conf")) == (NAMESRV, BROKER)


def test_comments_in_any_encoding_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes("# 集群\nbrokerName=b\n".encode("gbk"))
    assert load_settings({}, str(path), [], {}).get(BrokerConfig).broker_name == "b"
    path.write_bytes(b"\xff[store]\n")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_settings({}, str(path), [], {})


def test_no_key_means_two_settings() -> None:
    for sections in SECTIONS_OF.values():
        names = [rocketmq_name(kind, field) for kind in sections.values() for field in kind.__struct_fields__]
        assert len(names) == len(set(names))
        assert not set(names) & set(CONVERTED)


def test_the_start_says_it_and_convert_writes_the_same_settings(tmp_path: Path, run_command: Any) -> None:
    """``config show`` prints the notes; what ``config convert`` prints is a settings file with equal values."""
    (tmp_path / "broker.conf").write_text(USUAL.replace("brokerName=broker-b", 'brokerName=b"q'))
    shown = run_command("config", "show", "-c", str(tmp_path / "broker.conf"), "--changed")
    assert b"popCkStayBufferTime has no effect" in shown.stderr
    assert b'broker_name = "b\\"q"' in shown.stdout
    text = run_command("config", "convert", str(tmp_path / "broker.conf")).stdout.decode()
    assert tomllib.loads(text)["store"]["file_reserved_time"] == 48
    assert "popCkStayBufferTime has no effect" in text
    (tmp_path / "broker.toml").write_text(text)
    converted = load_settings({}, str(tmp_path / "broker.toml"), [], {})
    given = load_settings({}, str(tmp_path / "broker.conf"), [], {})
    for kind in (BrokerConfig, StoreConfig, ServerConfig):
        assert converted.get(kind) == given.get(kind)


def test_convert_refuses_what_is_not_rocketmqs(tmp_path: Path, run_command: Any) -> None:
    (tmp_path / "broker.toml").write_text("[store]\nfile_reserved_time = 5\n")
    refused = run_command("config", "convert", str(tmp_path / "broker.toml"))
    assert (refused.returncode, b"none of RocketMQ's settings" in refused.stderr) == (1, True)
    refused = run_command("config", "convert", "--as", "proxy", str(tmp_path / "broker.toml"))
    assert (refused.returncode, b"broker, namesrv" in refused.stderr) == (1, True)


def test_set_takes_rocketmqs_spelling() -> None:
    flags = ["transientStorePoolEnable=true", "store.osPageCacheBusyTimeOutMills=7", "brokerIP1=10.0.0.9"]
    settings = load_settings({}, None, flags, {})
    store = settings.get(StoreConfig)
    assert (store.transient_store_pool_enable, store.os_page_cache_busy_timeout_mills) == (True, 7)
    assert settings.get(BrokerConfig).broker_ip1 == "10.0.0.9"
    with pytest.raises(ConfigError, match=r"broker\.listen_port or namesrv\.listen_port"):
        load_settings({}, None, ["listenPort=1"], {})
