"""Start a server as a page does, but on free ports; end it cleanly as soon as it is ready.

The blocks of the pages run against the broker of the test; a server that a page starts is only shown to start.
"""

import signal
import subprocess
import sys
import tempfile
from typing import Final

FREE_PORTS: Final = {
    "standalone": ["--namesrv-port", "0", "--broker-port", "0", "--set", "metrics.listen_port=0"],
    "broker": ["--broker-port", "0", "--set", "metrics.listen_port=0"],
    "namesrv": ["--namesrv-port", "0"],
    "cluster": ["--namesrv-port", "0", "--broker-port", "0"],
}
SMALL: Final = ["--set", "store.mapped_file_size_commit_log=8388608"]


def main(command: str, *arguments: str) -> int:
    """Run ``pocketmq COMMAND ARGUMENTS`` until it prints ``ready``; return its exit code after SIGTERM."""
    small = [] if command == "namesrv" else SMALL
    with tempfile.TemporaryDirectory() as store:
        place = [] if {"-d", "--data-dir"} & {*arguments} else ["--data-dir", store]
        whole = [sys.executable, "-m", "pocketmq.cli.main", command, *arguments, *place, *FREE_PORTS[command], *small]
        with subprocess.Popen(whole, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
                if line.startswith("ready"):
                    process.send_signal(signal.SIGTERM)
        return process.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
