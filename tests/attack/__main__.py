"""Attack and print what came of it: python -m tests.attack [NAME ...] [--seconds N].

A load (``loads.py``) meets one broker and a bystander who sends and reads; a stranger (``strangers.py``) meets a name
server and a broker, and a bystander who sends.
"""

import argparse
import asyncio
import tempfile
from pathlib import Path

from tests.attack.attacked import Site
from tests.attack.loads import LOADS
from tests.attack.strangers import STRANGERS
from tests.attack.target import attack


async def stranger(directory: Path, name: str, seconds: float) -> str:
    """Return the verdict on one stranger."""
    return str(await Site(directory).attacked([name], seconds, seed=7))


async def load(directory: Path, name: str, seconds: float) -> str:
    """Return the figures of one load."""
    return (await attack(directory, name, seconds)).line()


def main() -> None:
    """Run the loads and strangers that are named, or all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", choices=[*LOADS, *STRANGERS, []], default=[])
    parser.add_argument("--seconds", type=float, default=10.0)
    chosen = parser.parse_args()
    for name in chosen.names or [*LOADS, *STRANGERS]:
        run = load if name in LOADS else stranger
        with tempfile.TemporaryDirectory() as directory:
            print(name, asyncio.run(run(Path(directory), name, chosen.seconds)), flush=True)


if __name__ == "__main__":
    main()
