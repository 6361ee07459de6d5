"""One life of real processes: a mode, its faults, and its kinds of messages.

Lives here: ``Plan``, ``one_life``.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.e2e.masters import Masters, masters_life
from tests.e2e.rounds import Life, a_life
from tests.e2e.tally import Tally
from tests.modes import Mode

ROUND_S_MAX: Final = 240.0


@dataclass(slots=True, frozen=True)
class Plan:
    """One life: what it is made of."""

    seed: int
    mode: Mode
    faults: tuple[str, ...]
    kinds: tuple[str, ...]
    network: bool
    copies: int

    def __str__(self) -> str:
        links = f", {self.copies} copies, {'network' if self.network else 'proxies'}"
        return f"life {self.seed}: {self.mode}{links if self.mode.shape == 'pair' else ''}"

    @asynccontextmanager
    async def live(self, tally: Tally) -> AsyncIterator[Life | Masters]:
        """Start its processes."""
        directory = Path(tempfile.mkdtemp(prefix="pocketmq-e2e-"))
        if self.mode.shape == "pair":
            async with a_life(
                self.seed,
                directory,
                tally,
                network=self.network,
                copies=self.copies,
                mode=self.mode,
                kinds=self.kinds,
            ) as life:
                yield life
        else:
            async with masters_life(self.seed, directory, tally, self.mode, self.kinds) as masters:
                yield masters


async def one_life(plan: Plan, tally: Tally) -> None:
    """Live through the faults of a plan, one per round."""
    async with plan.live(tally) as life:
        for fault in plan.faults:
            begin = time.monotonic()
            try:
                async with asyncio.timeout(ROUND_S_MAX):
                    await life.round(fault)
            except BaseException as error:
                error.add_note(f"in round {fault} of {plan.faults}")
                raise
            print(f"  {fault:<24} {time.monotonic() - begin:5.1f} s  {len(life.load.sent):>7,} answered", flush=True)
    tally.modes[str(plan.mode)] += 1
