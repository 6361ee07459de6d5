"""The delay levels of a broker.

Lives here: ``DelayLevels``, the reading of RocketMQ's setting ``messageDelayLevel``.
"""

import re
from typing import Final

from pocketmq.common.errors import ConfigError

DEFAULT_DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""RocketMQ MessageStoreConfig.messageDelayLevel: levels 1 to 18."""
LEVELS_MAX: Final = 64
DELAY_MS_MAX: Final = 366 * 86_400_000
UNKNOWN_LEVEL_MS: Final = 1000
"""The delay of a level that is not set any more (RocketMQ ScheduleMessageService.computeDeliverTimestamp)."""

_UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL = re.compile(r"(\d{1,9})([smhd])", re.ASCII)


class DelayLevels:
    """The delay of each level in ms; levels count from 1. Raises ``ConfigError`` for a text that is none."""

    __slots__ = ("levels_ms",)

    def __init__(self, text: str = DEFAULT_DELAY_LEVELS) -> None:
        parts = text.split()
        matches = [_LEVEL.fullmatch(part) for part in parts]
        delays_ms = [int(match[1]) * _UNITS_MS[match[2]] for match in matches if match is not None]
        if not 1 <= len(parts) <= LEVELS_MAX or len(delays_ms) < len(parts):
            wrong = next(
                (part for part, match in zip(parts, matches, strict=True) if match is None), f"{len(parts)} of them"
            )
            raise ConfigError(
                "setting refused",
                why=f"store.message_delay_level: {wrong[:100]!r}",
                hint=f"write 1 to {LEVELS_MAX} delays with a unit s, m, h or d: 1s 5s 10s 1m",
            )
        if max(delays_ms) > DELAY_MS_MAX:
            raise ConfigError(
                "setting refused", why=f"store.message_delay_level: {max(delays_ms)} ms", hint="at most 366d"
            )
        self.levels_ms = tuple(delays_ms)

    def __len__(self) -> int:
        return len(self.levels_ms)

    def clamp(self, level: int) -> int:
        """Return the level that counts: one above the highest is the highest."""
        return min(level, len(self.levels_ms))

    def delay_ms(self, level: int) -> int:
        """Return the delay of a level."""
        return self.levels_ms[level - 1] if 1 <= level <= len(self.levels_ms) else UNKNOWN_LEVEL_MS
