"""Settings: precedence, conversion, and the messages about wrong values."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.common.errors import ConfigError
from pocketmq.common.settings import Layer, SettingsReader, expected_text
from pocketmq.common.spelling import snake_case


class DiskConfig(msgspec.Struct, frozen=True, kw_only=True):
    flush_disk_type: Literal["ASYNC_FLUSH", "SYNC_FLUSH"] = "ASYNC_FLUSH"
    flush_interval: int = 500
    root_dir: Path = Path("store")
    check: bool = True
    ratio: float = 0.5
    name: str = "disk"
    hosts: list[str] = []

    def __post_init__(self) -> None:
        if self.flush_interval < 1:
            raise ConfigError("bad setting", why=f"disk.flush_interval={self.flush_interval}", hint="at least 1")
        if self.ratio > 1:
            raise ValueError("disk.ratio above 1")


class NetConfig(msgspec.Struct, frozen=True, kw_only=True):
    listen_port: int = 1
    name: str = "net"


class QueueConfig(msgspec.Struct, frozen=True, kw_only=True):
    former_names: ClassVar[Mapping[str, str]] = {"depth": "length"}
    length: int = 1


READER = SettingsReader({"disk": DiskConfig, "net": NetConfig})
RENAMED = SettingsReader({"queue": QueueConfig})


def test_a_later_layer_wins_and_every_value_knows_its_origin() -> None:
    merged = READER.merge(
        READER.from_values(
            {"disk.flush_interval": 1, "disk.name": "a", "net.name": "a", "net.listen_port": 1}, "built in"
        ),
        READER.from_file("[disk]\nflush_interval = 2\nname = 'b'\n[net]\nname = 'b'\n", "x.toml"),
        READER.from_environment({"POCKETMQ_DISK__FLUSH_INTERVAL": "3", "POCKETMQ_DISK__NAME": "c", "HOME": "/"}),
        READER.from_flags(["disk.flush_interval=4"]),
    )
    disk, net = merged.get(DiskConfig), merged.get(NetConfig)
    assert (disk.flush_interval, disk.name, net.name, net.listen_port) == (4, "c", "b", 1)
    assert merged.origin("disk", "flush_interval") == "--set disk.flush_interval=4"
    assert merged.origin("disk", "name") == "environment variable POCKETMQ_DISK__NAME"
    assert merged.origin("net", "name") == "x.toml line 5"
    assert merged.origin("net", "listen_port") == "built in"
    assert merged.origin("disk", "check") == "default"


def test_text_is_converted_by_the_type_of_the_key() -> None:
    merged = READER.merge(
        READER.from_flags(
            [
                "flush_interval=1_000",
                "check=false",
                "ratio=0.25",
                "flush_disk_type=SYNC_FLUSH",
                "disk.name=007",
                "root_dir=a b=c",
                "hosts=['a', 'b']",
            ]
        )
    )
    disk = merged.get(DiskConfig)
    assert disk == DiskConfig(
        flush_interval=1000,
        check=False,
        ratio=0.25,
        flush_disk_type="SYNC_FLUSH",
        name="007",
        root_dir=Path("a b=c"),
        hosts=["a", "b"],
    )


def test_all_unknown_keys_of_a_file_are_reported_with_line_and_nearest_name() -> None:
    text = "\n".join(["# comment", "[disk]", "flushInterval = 5", "", "[net]", "listen_prot = 1", "[dsik]", "x = 1"])
    with pytest.raises(ConfigError) as caught:
        READER.from_file(text, "broker.toml")
    told = str(caught.value)
    assert "broker.toml line 3: unknown key 'flushInterval' in [disk]; did you mean 'flush_interval'?" in told
    assert "broker.toml line 6: unknown key 'listen_prot' in [net]; did you mean 'listen_port'?" in told
    assert "broker.toml line 7: unknown section [dsik]; did you mean 'disk'?" in told


def test_a_key_of_another_section_and_a_key_outside_any_section_are_sent_there() -> None:
    with pytest.raises(
        ConfigError, match=r"x line 2: unknown key 'listen_port' in \[disk\]; did you mean 'net.listen_port'"
    ):
        READER.from_file("[disk]\nlisten_port = 3", "x")
    with pytest.raises(ConfigError, match=r"x line 1: 'listen_port' stands outside a section; it belongs in \[net\]"):
        READER.from_file("listen_port = 3", "x")


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["flush_interval"], "no '='"),
        (["name=x"], "'name' is in more than one section; write disk.name or net.name"),
        (["flush_disk_typ=x"], "unknown key 'flush_disk_typ'; did you mean 'disk.flush_disk_type'?"),
        (["dsk.name=x"], "unknown section 'dsk'; did you mean 'disk'?"),
        (["disk.zzzzzz=1"], "unknown key 'zzzzzz' in [disk]"),
    ],
)
def test_a_bad_flag_is_refused_with_a_way_out(flags: list[str], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        READER.from_flags(flags)
    assert f"--set {flags[0]}" in str(caught.value)
    assert told in str(caught.value)


def test_an_unknown_variable_is_refused_but_names_without_a_section_are_left_alone() -> None:
    assert READER.from_environment({"POCKETMQ_NAMESRV": "h:1", "POCKETMQ": "", "OTHER_DISK__NAME": "x"}) == {}
    with pytest.raises(ConfigError, match="POCKETMQ_DISK__NAME"):
        READER.from_environment({"POCKETMQ_DISK_NAME": "x"})
    with pytest.raises(
        ConfigError, match=r"POCKETMQ_DISK__NAMES: unknown key 'names' in \[disk\]; did you mean 'name'"
    ):
        READER.from_environment({"POCKETMQ_DISK__NAMES": "x"})


def test_the_variables_of_clients_do_not_stop_a_daemon() -> None:
    """They may be set for a whole session, and a daemon may have a section ``tls``."""
    reader = SettingsReader({"tls": NetConfig})
    assert reader.from_environment({"POCKETMQ_TLS_CA": "ca.pem", "POCKETMQ_TLS": "true"}) == {}
    with pytest.raises(ConfigError, match="POCKETMQ_TLS__NAME"):
        reader.from_environment({"POCKETMQ_TLS_NAME": "x"})


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("flush_interval = 'soon'", "f.toml line 2: disk.flush_interval='soon' is not a whole number"),
        ("flush_interval = true", "disk.flush_interval=True is not a whole number"),
        ("check = 'maybe'", "disk.check='maybe' is not true or false"),
        ("name = 5", "disk.name=5 is not text"),
        ("flush_disk_type = 'NO_FLUSH'", "is not 'ASYNC_FLUSH' or 'SYNC_FLUSH'"),
        ("hosts = [1]", "is not a list of values, each text"),
    ],
)
def test_a_wrong_type_names_key_value_and_what_is_expected(line: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        READER.merge(READER.from_file(f"[disk]\n{line}\n", "f.toml"))
    assert told in str(caught.value)


def test_a_value_that_the_section_itself_refuses_says_who_gave_it() -> None:
    with pytest.raises(ConfigError, match=r"disk.flush_interval=0 \(given by --set flush_interval=0\) \(at least 1\)"):
        READER.merge(READER.from_flags(["flush_interval=0"]))
    with pytest.raises(ConfigError, match=r"impossible settings in \[disk\]: disk.ratio above 1"):
        READER.merge(READER.from_flags(["ratio=2"]))


def test_what_is_not_toml_and_what_is_too_large_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"f.toml is not TOML: .*line 2"):
        READER.from_file("[disk]\nname = \n", "f.toml")
    with pytest.raises(ConfigError, match=r"f\.toml is not read"):
        READER.from_file("#" * ((1 << 20) + 1), "f.toml")


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused_with_a_config_error(text: str) -> None:
    for layer in ("file", "flag"):
        try:
            READER.merge(READER.from_file(text, "f") if layer == "file" else READER.from_flags([text]))
        except ConfigError as error:
            told = str(error)
            assert len(told) > 10


def test_rocketmq_spelling_becomes_ours() -> None:
    assert snake_case("flushDiskType") == "flush_disk_type"
    assert snake_case("osPageCacheBusyTimeOutMills") == "os_page_cache_busy_timeout_mills"
    assert expected_text(int | None) == "a whole number"


@pytest.mark.parametrize(
    ("layer", "origin"),
    [
        (lambda: RENAMED.from_file("[queue]\ndepth = 7\n", "x.toml"), "x.toml line 2"),
        (lambda: RENAMED.from_mapping({"queue": {"depth": 7}}, "the program"), "the program"),
        (
            lambda: RENAMED.from_environment({"POCKETMQ_QUEUE__DEPTH": "7"}),
            "environment variable POCKETMQ_QUEUE__DEPTH",
        ),
        (lambda: RENAMED.from_flags(["queue.depth=7"]), "--set queue.depth=7"),
        (lambda: RENAMED.from_flags(["depth=7"]), "--set depth=7"),
    ],
)
def test_a_key_is_taken_under_its_former_name(layer: Callable[[], Layer], origin: str) -> None:
    """Any source may use it; a warning names the source."""
    with pytest.warns(DeprecationWarning, match=r"queue\.depth is now queue\.length"):
        merged = RENAMED.merge(layer())
    assert merged.get(QueueConfig).length == 7
    assert merged.origin("queue", "length") == origin
    assert merged.renamed == (f"{origin}: queue.depth is now queue.length",)


@pytest.mark.parametrize("text", ["depth = 7\nlength = 8", "length = 8\ndepth = 7"])
def test_in_one_layer_the_name_wins_over_the_former_one(text: str) -> None:
    merged = RENAMED.merge(RENAMED.from_file(f"[queue]\n{text}\n", "x.toml"))
    assert (merged.get(QueueConfig).length, merged.renamed) == (8, ())


def test_a_later_layer_wins_under_either_name() -> None:
    below = RENAMED.from_file("[queue]\nlength = 8\n", "x.toml")
    with pytest.warns(DeprecationWarning, match="is now"):
        assert RENAMED.merge(below, RENAMED.from_flags(["queue.depth=7"])).get(QueueConfig).length == 7


def test_a_key_that_never_was_stays_an_error() -> None:
    with pytest.raises(ConfigError, match="unknown key 'dept'"):
        RENAMED.from_file("[queue]\ndept = 7\n", "x.toml")
