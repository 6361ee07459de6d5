"""NATS with JetStream, built by Go from the module proxy into the cache."""

import os
import subprocess
from typing import Any

from bench.peers.base import Server, Unavailable, cache_directory, find_program, run_tool

VERSION = "v2.15.2"
SYNC = {"async": '"500ms"', "sync": "always"}


class NatsServer(Server):
    """One nats-server with file storage."""

    name = "nats"

    @classmethod
    def obtain(cls) -> str:
        program = cls._program()
        text = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
        return text.split("v")[-1].strip()

    @classmethod
    def _program(cls) -> str:
        built = cache_directory() / f"nats-{VERSION}" / "nats-server"
        if built.exists():
            return str(built)
        go = find_program("go", "/usr/local/go/bin")
        if go is None:
            found = find_program("nats-server")
            if found:
                return found
            raise Unavailable("no Go toolchain to build nats-server with: apt-get install nats-server")
        environment = {**os.environ, "GOBIN": str(built.parent), "CGO_ENABLED": "0"}
        package = f"github.com/nats-io/nats-server/v2@{VERSION}"
        run_tool([go, "install", package], environment, "nats-server cannot be built")
        return str(built)

    def start(self) -> None:
        [port] = self.ports(1)
        config = self.directory / "nats.conf"
        config.write_text(
            f'listen: "127.0.0.1:{port}"\nmax_payload: 8MB\n'
            f'jetstream {{ store_dir: "{(self.directory / "data").resolve()}", '
            f"max_file_store: 64GB, sync_interval: {SYNC[self.settings.durability]} }}\n"
        )
        self.launch([self._program(), "-c", str(config)], "nats-server", port)

    @property
    def target(self) -> dict[str, Any]:
        return {"host": "127.0.0.1", "port": self.ports(1)[0], "replicas": 1}
