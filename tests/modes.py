"""Which modes of a broker and which kinds of messages the long rounds go through: the one table of both.

Lives here: ``Mode``, ``MODES``, ``LEGAL``, ``KINDS``. ``make partitions`` and ``make torture`` take every legal mode in
turn, and every kind of message in each; ``tests/test_modes.py`` holds the product to ``why_not``.
"""

import itertools
import random
from dataclasses import dataclass
from typing import Final

APPENDS: Final = ("mapped", "written")
POOLS: Final = ("none", "surviving", "anonymous")
FLUSHES: Final = ("ASYNC_FLUSH", "SYNC_FLUSH")
SHAPES: Final = ("alone", "pair", "masters")
"""One broker; a synchronous master with its slave; two masters with a store each."""
KINDS: Final = ("plain", "ordered", "delayed", "transactional", "staged")
POOL_BUFFER_BYTES: Final = 1 << 16
"""Smaller than a file of the log, so that buffers change within one, too."""


@dataclass(slots=True, frozen=True)
class Mode:
    """How brokers append, buffer and flush, and how many of them there are."""

    append: str
    pool: str
    flush: str
    shape: str

    def __str__(self) -> str:
        pool = "" if self.pool == "none" else f", {self.pool} write buffers"
        return f"{self.shape}, {self.append}{pool}, {self.flush}"

    @property
    def why_not(self) -> str:
        """Return why no broker takes this mode; empty: it is legal."""
        if self.pool != "none" and self.flush == "SYNC_FLUSH":
            return "the pool acknowledges from memory, a synchronous flush from the disk"
        return ""

    @property
    def loses_with_its_process(self) -> bool:
        """Whether a kill may take what was acknowledged just before: RocketMQ's kind of pool, and no slave has it."""
        return self.pool == "anonymous" and self.shape != "pair"

    @property
    def store_settings(self) -> dict[str, object]:
        """Return the settings of ``[store]``, those of the pool among them."""
        return {"append_mode": self.append, "flush_disk_type": self.flush, **self.pool_settings}

    @property
    def pool_settings(self) -> dict[str, object]:
        """Return the settings that a slave must not have."""
        if self.pool == "none":
            return {}
        path = {"transient_store_pool_path": "anonymous"} if self.pool == "anonymous" else {}
        size = {"transient_store_pool_size": 4, "transient_store_pool_buffer_size": POOL_BUFFER_BYTES}
        return {"transient_store_pool_enable": True, **size, **path}


MODES: Final = tuple(Mode(*each) for each in itertools.product(APPENDS, POOLS, FLUSHES, SHAPES))
LEGAL: Final = tuple(mode for mode in MODES if not mode.why_not)


def in_turn(seed: int, shapes: tuple[str, ...] = SHAPES) -> list[Mode]:
    """Return the legal modes of these shapes in an order of the seed: run after run all of them have their turn."""
    chosen = [mode for mode in LEGAL if mode.shape in shapes]
    random.Random(seed).shuffle(chosen)
    return chosen
