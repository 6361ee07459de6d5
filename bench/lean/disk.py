"""The bare disk: ``fdatasync`` in a process of its own, on the cores and with the priority of a server.

Run by ``bench.lean.cases``: ``python -m bench.lean.disk FILE BYTES SECONDS`` prints a row of
``bench.comparison.floors`` as JSON.
"""

import json
import sys
from pathlib import Path

from bench.comparison.floors import sync_row


def main() -> None:
    """Measure and print."""
    path, size_bytes, seconds = sys.argv[1:]
    print(json.dumps(sync_row(Path(path), int(size_bytes), float(seconds))))


if __name__ == "__main__":
    main()
