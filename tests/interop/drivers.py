"""Other people's clients as processes that our cases drive: one small program for each language, the same verbs in all.

    with driver("go", servers.namesrv, tmp_path) as go:
        go.call("producer", name="p", group="g")
        go.call("send", name="p", topic="T", bodies=b"hello".hex())

The programs are in ``clients/`` and ``java/modes``; they are built from public packages in the user's cache, keyed by
what they were made of. A missing tool or package skips the test with one line.

Lives here: the clients, how each is built and started.
"""

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop.toolchain import MODES, JavaProcess, cache_folder, java_command, require_java

CLIENTS_FOLDER = Path(__file__).parent / "clients"
BUILD_S = 900.0
JAVA = tuple(f"java-{version}" for version in MODES)
OTHERS = ("go", "cpp", "rust", "js")
PACKAGES = {
    "go": "Go rocketmq-client-go/v2 2.1.2",
    "cpp": "C++ librocketmq (PyPI rocketmq 0.4.4)",
    "rust": "Rust rocketmq-client-rust 1.0.0",
    "js": "JavaScript ali-ons 3.12.0",
    **{f"java-{version}": f"Java rocketmq-client {version}" for version in MODES},
}
"""Client → what docs/compatibility.md calls it."""
_TOOLS = {
    "go": ("go", "/usr/local/go/bin", "https://go.dev/dl"),
    "cpp": ("g++", "", "apt-get install g++"),
    "rust": ("cargo", "/root/.cargo/bin", "https://rustup.rs"),
    "js": ("npm", "", "apt-get install nodejs npm"),
}


def _tool(client: str) -> str:
    name, folder, install = _TOOLS[client]
    if client == "cpp":
        return sys.executable  # the package brings the library
    found = shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), folder)))
    if found is None:
        pytest.skip(f"{PACKAGES[client]} needs {name}: {install}")
    return found


@contextmanager
def built(client: str, source: Path) -> Iterator[tuple[Path, bool]]:
    """Give the folder of a client's program, a copy of ``source``, and whether it is finished; one process at a time
    fills it."""
    digest = hashlib.sha256()
    for path in sorted(source.rglob("*")):
        if path.is_file():
            digest.update(path.relative_to(source).as_posix().encode() + path.read_bytes())
    folder = cache_folder() / f"{client}-{digest.hexdigest()[:16]}"
    with (cache_folder() / f"{client}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder / ".built"
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(source, folder)
        yield folder, done.exists()
        done.touch()


def run(package: str, command: Sequence[str], folder: Path, **environment: str) -> None:
    """Run a step of a build; skip the test if the package is not to be had."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=BUILD_S, env=os.environ | environment
    )
    if done.returncode != 0:
        pytest.skip(f"{package} is not to be had: {' '.join(command)}: {(done.stdout + done.stderr)[-600:]}")


@functools.cache
def _program(client: str) -> list[str]:
    """Return the command of a client's program, built if it is not yet."""
    tool = _tool(client)
    source, package = CLIENTS_FOLDER / {"cpp": "python", "js": "node"}.get(client, client), PACKAGES[client]
    with built(client, source) as (folder, finished):
        if client == "go":
            if not finished:
                run(package, [tool, "build", "-o", "driver", "."], folder)
            return [str(folder / "driver")]
        if client == "rust":
            if not finished:
                target = {"CARGO_TARGET_DIR": str(cache_folder() / "rust-target")}
                run(package, [tool, "build", "--quiet"], folder, **target)
                shutil.copy(cache_folder() / "rust-target" / "debug" / "pocketmq-interop", folder / "driver")
            return [str(folder / "driver")]
        if client == "js":
            if not finished:
                run(package, [tool, "install", "--no-audit", "--no-fund", "--silent"], folder)
            return ["node", str(folder / "driver.js")]
        if not finished:
            run(package, [tool, "-m", "venv", "venv"], folder)
            run(package, ["venv/bin/pip", "install", "--quiet", "rocketmq==0.4.4"], folder)
        return [str(folder / "venv/bin/python"), str(folder / "driver.py")]


@contextmanager
def driver(client: str, namesrv: str, directory: Path) -> Iterator[JavaProcess]:
    """Run the program of a client until the block ends; ``directory`` is its working directory and home."""
    directory.mkdir(parents=True, exist_ok=True)
    if client in JAVA:
        require_java()
        version = client.removeprefix("java-")
        main = "Modes" if version == "4.2.0" else "ModesTx"
        options = ("-Xms64m", "-Xmx512m", f"-Drocketmq.client.logRoot={directory}")
        command = java_command(f"modes-{version}", main, directory, options, [namesrv])
    else:
        command = [*_program(client), namesrv, str(directory / "client.log")]
    with JavaProcess(command, directory, {"HOME": str(directory)}) as process:
        yield process
