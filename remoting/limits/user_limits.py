"""Limits of one user.

Lives here: ``UserLimits``, ``RATES``.
"""

from typing import Final

import msgspec

LIMIT_MAX: Final = 1 << 53
"""Largest limit: JSON of other languages holds no larger number exactly."""
RATES: Final = ("bytes_in", "messages_in", "bytes_out", "messages_out")
"""What is limited a second, in the order of the settings."""


class UserLimits(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a user may have in place of what the settings say. None: as the settings say; 0: no limit."""

    bytes_in_per_second: int | None = None
    messages_in_per_second: int | None = None
    bytes_out_per_second: int | None = None
    messages_out_per_second: int | None = None
    connections_max: int | None = None
    topics_max: int | None = None
    groups_max: int | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and not 0 <= value <= LIMIT_MAX:
                raise ValueError(f"limit {name} is {value}, not 0 to {LIMIT_MAX}")

    def over(self, defaults: "UserLimits") -> "UserLimits":
        """Return these limits, with those of ``defaults`` where this has none."""
        return UserLimits(
            **{
                name: getattr(defaults, name) if getattr(self, name) is None else getattr(self, name)
                for name in self.__struct_fields__
            }
        )

    @property
    def is_empty(self) -> bool:
        """Whether nothing is limited."""
        return not any(getattr(self, name) for name in self.__struct_fields__)


NO_LIMITS: Final = UserLimits()
