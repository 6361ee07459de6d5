"""RocketMQ's ``broker.conf`` and ``namesrv.conf`` as settings of this broker and name server.

Lives here: ``translate``. A key that is RocketMQ's spelling of a setting gives that setting; ``CONVERTED`` has those
with another name or unit. Any other key has no effect, here as in RocketMQ, and gets a note with the reason, if
``REASONS`` knows one. A key that promises what is missing here, such as access control, is refused (``REFUSED``).
"""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

import msgspec

from pocketmq.broker.config import BrokerConfig
from pocketmq.common.errors import ConfigError
from pocketmq.common.java_properties import Property, read_properties
from pocketmq.common.settings import Given, rocketmq_name
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.store.config import StoreConfig

BROKER: Final = "broker"
NAMESRV: Final = "namesrv"
SECTIONS_OF: Final[Mapping[str, Mapping[str, type[msgspec.Struct]]]] = {
    BROKER: {"broker": BrokerConfig, "store": StoreConfig},
    NAMESRV: {"namesrv": NamesrvConfig},
}
"""Kind of file → sections whose settings its keys may name."""


def _same(value: str) -> str:
    return value


def _seconds(value: str) -> str:
    return str(int(value) * 1000) if re.fullmatch(r"\d{1,9}", value, re.ASCII) else value


CONVERTED: Final[Mapping[str, tuple[str, Callable[[str], str]]]] = {
    "serverChannelMaxIdleTimeSeconds": ("remoting.idle_ms_max", _seconds),
    "serverAsyncSemaphoreValue": ("remoting.client_requests_max", _same),
    "serverSocketBacklog": ("remoting.listen_backlog", _same),
    "haMaxGapNotInSync": ("store.ha_slave_fallbehind_max", _same),
    "metricsPromExporterPort": ("metrics.listen_port", _same),
    "metricsPromExporterHost": ("metrics.bind_address", _same),
}
"""Keys whose settings have another name, unit or section (NettyServerConfig; RocketMQ 5's BrokerConfig and
MessageStoreConfig)."""

REFUSED: Final[Sequence[tuple[str, str, str]]] = (
    ("aclEnable|authenticationEnabled|authorizationEnabled", "true", "there is no access control here"),
    ("enableDLegerCommitLog", "true", "there is no DLedger here; docs/replication.md describes master and slaves"),
    ("enableControllerMode", "true", "there is no controller here to give brokers their roles: set brokerRole"),
    ("storeType", "(?i:.*rocksdb)", "this store has RocketMQ's file format, not RocksDB's"),
)
"""(key, value, reason): to pass over these would make another broker than the file asks for."""

_ROOT: Final = "this store always has it in storePathRootDir"
REASONS: Final[Sequence[tuple[str, str]]] = (
    ("brokerIP2", "slaves connect to brokerIP1"),
    ("storePathCommitLog", _ROOT),
    ("storePath(ConsumeQueue|Index)|storeCheckpoint|abortFile", f"RocketMQ does not read it either; {_ROOT}"),
    ("mapedFileSize(CommitLog|ConsumeQueue)", "a name of RocketMQ up to 4.4; now it is mappedFileSize…"),
    ("storePath.*|kvConfigPath|configStorePath|authConfigPath|brokerConfigPath|rocketmqHome", "there is no such file"),
    (".*(ThreadPoolNums|ThreadNum|Threads)", "one thread takes all the requests that wait at once"),
    ("fetchNam.*|updateNameServerAddrPeriod", "name servers are those of namesrvAddr"),
    ("metrics.*|metricGrpc.*", "metrics are served to Prometheus: section [metrics]"),
    ("server.*|client.*|useEpoll.*|writeBuffer.*|connectTimeoutMillis|useTLS|socks.*", "Netty's; see [remoting]"),
    ("(?i:.*(pop|revive).*)", "POP of RocketMQ 5 is not served"),
    ("(?i:.*(acl|auth).*)", "there is no access control here"),
    ("(?i:.*rocksdb.*)|.*MemTable.*|memTable.*", "there is no RocksDB here"),
    ("(?i:.*compaction.*)", "there are no compaction topics here"),
    ("(?i:.*(controller|syncStateSet|actingMaster|election|minBrokerId).*)", "there is no controller here"),
    ("(?i:.*(dLeger|dLedger).*)|preferredLeaderId", "there is no DLedger here"),
    ("(?i:.*lmq.*)|enableMultiDispatch", "there are no light message queues here"),
    ("(?i:.*(cold|swapMap|swapedMap|MappedFileSwap).*)|transferMsgByHeap", "about the memory maps of the JVM"),
    (".*Lock.*|useABSLock", "the log has one lock"),
    ("commercial.*|account.*", "there are no commercial statistics"),
    ("consumerFallbehindThreshold|disableConsumeIfConsumerReadSlowly", "a slow consumer is never cut off"),
    ("destroyMapedFileIntervalForcibly|redeleteHangedFileInterval", "a file is removed at once, readers or not"),
    ("checkTransactionMessageEnable|filterServerNums|compressedRegister|forceRegister", "of earlier versions"),
)
"""(keys, why they have no effect), the first that matches."""
POOL_SIZES: Final = ("sendMessageThreadPoolNums", "pullMessageThreadPoolNums")
POOL_SIZE_MAX: Final = 2


MISSING: Final[Mapping[str, Mapping[tuple[str, str], str]]] = {
    BROKER: {
        ("broker", "bind_address"): "no bindAddress: it listens on 127.0.0.1 only (RocketMQ: on every address)",
        ("store", "store_path_root_dir"): "no storePathRootDir: the store is ./pocketmq-data (RocketMQ: ~/store)",
    },
    NAMESRV: {
        ("namesrv", "bind_address"): "no bindAddress: it listens on 127.0.0.1 only (RocketMQ: on every address)",
    },
}
"""Kind of file → setting → what to say where nothing gives it: a default differs so much that clients or messages would
be missed."""


@dataclass(slots=True)
class Translation:
    """What a file gives: settings with their places, and a note for each key without effect."""

    layer: dict[tuple[str, str], Given] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def kind_of(name: str) -> str:
    """Return whose settings a file has, by its name: ``namesrv…`` is a name server's, any other a broker's."""
    return NAMESRV if PurePosixPath(name).name.lower().startswith(NAMESRV) else BROKER


def translate(text: str, name: str, kind: str) -> Translation:
    """Return the settings of a properties text; the last of equal keys wins, as in Java. Raise ``ConfigError`` with
    file and line for a key that must not be passed over.

    ``kind``: ``BROKER`` or ``NAMESRV``. Values are checked later, with those of all other sources.
    """
    last = {each.key: each for each in read_properties(text, name)}
    known = {
        rocketmq_name(struct, each): (section, each)
        for section, struct in SECTIONS_OF[kind].items()
        for each in struct.__struct_fields__
    }
    values = {key: each.value for key, each in last.items()}
    found = Translation()
    for each in sorted(last.values(), key=lambda one: one.line):
        origin = f"{name} line {each.line}"
        _refuse(each, values, origin)
        why = _not_taken(each, values)
        if why is None and each.key in known:
            found.layer[known[each.key]] = Given(each.value, origin, textual=True)
        elif why is None and each.key in CONVERTED:
            setting, convert = CONVERTED[each.key]
            section, _, key = setting.partition(".")
            found.layer[section, key] = Given(convert(each.value), origin, textual=True)
        else:
            found.notes.append(f"{origin}: {each.key} has no effect: {why or _reason(each.key, known)}")
    return found


def _refuse(one: Property, values: Mapping[str, str], origin: str) -> None:
    for keys, value, why in REFUSED:
        if re.fullmatch(keys, one.key) and re.fullmatch(value, one.value):
            raise ConfigError(
                "bad setting", why=f"{origin}: {one.key}={one.value}: {why}", hint="remove the line to go without it"
            )
    root = values.get("storePathRootDir", "")
    if one.key == "storePathCommitLog" and PurePosixPath(one.value) != PurePosixPath(root) / "commitlog":
        raise ConfigError(
            "bad setting",
            why=f"{origin}: storePathCommitLog={one.value}: the log is always commitlog in storePathRootDir",
            hint="make a symbolic link of that name there, and remove the line",
        )
    if one.key == "readOnlyCommitLogStorePaths" and one.value:
        raise ConfigError(
            "bad setting", why=f"{origin}: {one.key}={one.value}: the log is one directory", hint="move its files there"
        )


def _not_taken(one: Property, values: Mapping[str, str]) -> str | None:
    """Return why a known key is left out, or None."""
    if one.key in POOL_SIZES and re.fullmatch(r"\d{1,9}", one.value, re.ASCII) and int(one.value) > POOL_SIZE_MAX:
        return f"at most {POOL_SIZE_MAX} here, where one thread takes all the requests that wait at once"
    if one.key == "maxHaTransferByteInSecond" and values.get("haFlowControlEnable", "").lower() != "true":
        return "haFlowControlEnable=true is missing"
    return None


def _reason(key: str, known: Mapping[str, object]) -> str:
    if key == "haFlowControlEnable":
        return "maxHaTransferByteInSecond alone decides"
    if key == "metricsExporterType":
        return "metrics are always served to Prometheus; metricsPromExporterPort=0 serves none"
    for keys, why in REASONS:
        if re.fullmatch(keys, key):
            return why
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.85)
    return f"did you mean {near[0]}?" if near else "no setting here is like it"
