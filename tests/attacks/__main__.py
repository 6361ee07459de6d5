"""Attack a broker and print what a bystander saw: python -m tests.attacks [LOAD ...] [--seconds N]."""

import argparse
import asyncio
import tempfile
from pathlib import Path

from tests.attacks.loads import LOADS
from tests.attacks.target import attack


def main() -> None:
    """Run the loads that are named, or all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("loads", nargs="*", choices=[*LOADS, []], default=[])
    parser.add_argument("--seconds", type=float, default=10.0)
    chosen = parser.parse_args()
    for name in chosen.loads or LOADS:
        with tempfile.TemporaryDirectory() as directory:
            print(name, asyncio.run(attack(Path(directory), name, chosen.seconds)).line(), flush=True)


if __name__ == "__main__":
    main()
