"""All targets by name, and the committed crashes of each.

Lives here: ``TARGETS``, ``crashes``.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.fuzz import records, stores, wire
from tests.fuzz.target import Target

TARGETS: Final[dict[str, Target]] = {**wire.TARGETS, **records.TARGETS, **stores.TARGETS}
CRASHES: Final = Path(__file__).parents[1] / "vectors" / "fuzz"


def crashes() -> Iterator[tuple[str, Path]]:
    """Yield the target and the file of each input that once crashed one: ``tests/vectors/fuzz/TARGET/NAME``."""
    for path in sorted(CRASHES.glob("*/*")):
        yield path.parent.name, path
