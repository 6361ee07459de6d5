"""Settings of a running broker: shown, and changed where that is safe.

Lives here: handlers of GET_BROKER_CONFIG and UPDATE_BROKER_CONFIG.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from pocketmq.broker.admin.admin_refused import AdminRefused
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.request.default_processor import Handler
from pocketmq.broker.request.request_task import Buffers, Task, encode_answer
from pocketmq.broker.settings.live_settings import Change, LiveSettings, text_of
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.errors import Cause, ConfigError
from pocketmq.common.java_properties import read_properties
from pocketmq.common.settings import rocketmq_name
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.broker import GetBrokerConfigResponseHeader
from pocketmq.store.config import StoreConfig

CONSTANT_SETTINGS: Final[Mapping[str, str]] = {"filterServerNums": "0", "useTLS": "false"}
"""Settings that RocketMQ's exportConfigs reads from every broker; each of ours has these values."""
SETTINGS_MAX: Final = 1_000
"""In one request."""


@dataclass(slots=True, eq=False)
class SettingsAdmin:
    """Handlers about settings. ``take_effect`` blocks on the disk: changes have the thread of administrators."""

    config: BrokerConfig
    store_config: StoreConfig
    topics: TopicTable
    live: LiveSettings
    take_effect: Callable[[Sequence[Change]], None]

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handler of each code."""
        return {
            RequestCode.GET_BROKER_CONFIG: self._settings,
            RequestCode.UPDATE_BROKER_CONFIG: self._change,
        }

    def _settings(self, task: Task) -> Buffers:
        lines: list[str] = []
        for struct in (self.config, self.store_config):
            lines += [
                f"{rocketmq_name(type(struct), name)}={text_of(getattr(struct, name))}\n"
                for name in struct.__struct_fields__
            ]
        lines += [f"{name}={text}\n" for name, text in CONSTANT_SETTINGS.items()]
        version = msgspec.json.encode(self.topics.snapshot()[1]).decode()
        return encode_answer(
            task.request, header=GetBrokerConfigResponseHeader(version=version), body="".join(lines).encode()
        )

    def _change(self, task: Task) -> Buffers:
        """Change what the body names, all or nothing (RocketMQ AdminBrokerProcessor.updateBrokerConfig)."""
        session = task.request.session
        by = task.connection.remote if session is None else session.user.username
        try:
            changes = self.live.change(properties_of(bytes(task.request.body)), by=by)
        except ConfigError as error:
            raise AdminRefused(error.what, why=error.why, hint=error.hint, cause=Cause.BAD_REQUEST) from error
        except (ValueError, TypeError) as error:
            raise AdminRefused("setting not changed", why=str(error), cause=Cause.BAD_REQUEST) from error
        self.take_effect(changes)  # without changes, too: earlier ones may not be on the disk
        return encode_answer(task.request)


def properties_of(body: bytes) -> dict[str, str]:
    """Return the names and values of a properties text (RocketMQ MixAll.string2Properties). Raise ``AdminRefused``,
    ``ConfigError``."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise AdminRefused("setting not changed", why="the body is not UTF-8", cause=Cause.BAD_REQUEST) from error
    found = read_properties(text, "the request")
    if not 0 < len(found) <= SETTINGS_MAX:
        why = f"the body has {len(found)} settings"
        raise AdminRefused("setting not changed", why=why, hint="send lines of name=value", cause=Cause.BAD_REQUEST)
    return {each.key: each.value for each in found}
