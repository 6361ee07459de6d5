"""RocketMQ's gRPC clients as processes that our cases drive: a small program for each language, the same verbs in all.

    with grpc_client("python", server.grpc, tmp_path) as client:
        client.call("producer", name="p", topics="T")
        client.call("send", name="p", topic="T", bodies=b"hello".hex())

The programs are in ``clients/grpc-…`` and ``java/grpc``; they are built from public packages in the user's cache. A
missing tool or package skips the test with one line.

Lives here: the clients, how each is built and started.
"""

import functools
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop.drivers import CLIENTS_FOLDER, built, run
from tests.interop.toolchain import JavaProcess, java_command, require_java

GRPC_PACKAGES = {
    "python": "Python rocketmq-python-client 5.1.2",
    "java": "Java rocketmq-client-java 5.2.0",
    "node": "Node rocketmq-client-nodejs 1.0.8",
}
"""Client → what docs/compatibility.md calls it."""


@functools.cache
def _program(client: str) -> list[str]:
    """Return the command of a client's program, built if it is not yet."""
    with built(f"grpc-{client}", CLIENTS_FOLDER / f"grpc-{client}") as (folder, finished):
        if client == "node":
            npm = shutil.which("npm")
            if npm is None:
                pytest.skip(f"{GRPC_PACKAGES[client]} needs npm: apt-get install nodejs npm")
            if not finished:
                run(GRPC_PACKAGES[client], [npm, "install", "--no-audit", "--no-fund", "--silent"], folder)
            return ["node", str(folder / "driver.js")]
        if not finished:
            run(GRPC_PACKAGES[client], [sys.executable, "-m", "venv", "venv"], folder)
            pip = ["venv/bin/pip", "install", "--quiet", "rocketmq-python-client==5.1.2"]
            run(GRPC_PACKAGES[client], pip, folder)
        return [str(folder / "venv/bin/python"), str(folder / "driver.py")]


@contextmanager
def grpc_client(
    client: str, endpoints: str, directory: Path, user: str = "", secret: str = ""
) -> Iterator[JavaProcess]:
    """Run the program of a client until the block ends; ``directory`` is its working directory and home."""
    directory.mkdir(parents=True, exist_ok=True)
    arguments = [endpoints, user, secret] if user else [endpoints]
    if client == "java":
        require_java()
        options = ("-Xms64m", "-Xmx512m", f"-Duser.home={directory}")
        command = java_command("grpc-5.2", "GrpcClients", directory, options, arguments)
    else:
        command = [*_program(client), *arguments]
    with JavaProcess(command, directory, {"HOME": str(directory)}) as process:
        yield process
