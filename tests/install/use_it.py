"""What a clean environment with nothing but the wheel must be able to do; run by its own Python, in an empty directory.

    python -I use_it.py

Imports only the standard library and what the wheel brings.
"""

import importlib
import importlib.metadata
import os
import pkgutil
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path

OPTIONAL = {
    "atheris", "backports", "cryptography", "h2", "hpack", "jinja2", "lz4", "markupsafe", "matplotlib",
    "opentelemetry", "pandas", "psycopg", "pyarrow", "pymysql", "pyspark", "pytest", "redis", "rocksdict",
    "sqlalchemy", "starlette", "uvicorn", "watchfiles", "yaml", "_pytest", "py4j",
}  # fmt: skip
"""Packages of extras: a module that needs one says so at its import."""
PAGES = ("README.md", "CHANGELOG.md", "docs/deployment.md", "docs/settings.md", "examples/flights/README.md")
SETTINGS = ("standalone.toml", "sync-pair/broker-a-master.toml", "two-masters/namesrv.toml", "systemd/pocketmq.service")
TIMEOUT_S = 120


def say(text: str) -> None:
    """Print what has been seen."""
    print(f"  {text}", flush=True)


def check_files() -> None:
    """The package is the installed one; its settings and pages are there."""
    import pocketmq

    here = Path(pocketmq.__file__).parent
    assert here == Path(sysconfig.get_path("purelib")) / "pocketmq", here
    assert pocketmq.__version__ == importlib.metadata.version("pocketmq")
    for name in ("py.typed", *(f"conf/{each}" for each in SETTINGS)):
        assert (here / name).is_file(), name
    for name in PAGES:
        assert (Path(sys.prefix) / "share" / "doc" / "pocketmq" / name).is_file(), name
    description = importlib.metadata.distribution("pocketmq").read_text("METADATA") or ""
    assert "](docs/" not in description, "a link into the repository is dead on an index page"


def check_imports() -> None:
    """Every module can be imported, or names a package of an extra."""
    import pocketmq

    done, without = 0, set()
    for module in pkgutil.walk_packages(pocketmq.__path__, "pocketmq."):
        try:
            importlib.import_module(module.name)
            done += 1
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in OPTIONAL:
                raise
            without.add(missing)
    assert done > 500, done
    say(f"{done} modules imported; extras that are not here: {', '.join(sorted(without))}")


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def check_commands() -> None:
    """A broker of the command, used by commands and by the SDK, stopped by SIGTERM."""
    command = shutil.which("pocketmq", path=str(Path(sys.executable).parent))
    assert command is not None
    namesrv = f"127.0.0.1:{free_port()}"
    environment = {**os.environ, "POCKETMQ_NAMESRV": namesrv}

    def run(*arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [command, *arguments], env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        assert done.returncode == code, (arguments, done.stdout, done.stderr)
        return done.stdout

    assert run("--version").split()[1] == importlib.metadata.version("pocketmq")
    assert "pocketmq standalone" in run(code=2)
    assert "[broker]" in run("config", "template")
    arguments = [command, "standalone", "--namesrv-port", namesrv.rpartition(":")[2], "--broker-port", "0"]
    arguments += [
        "--data-dir",
        "data",
        "--profile",
        "small",
        "--set",
        "metrics.listen_port=0",
        "--log-level",
        "warning",
    ]
    server = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        ready = server.stdout.readline()
        assert ready.startswith(f"ready namesrv={namesrv} broker="), ready
        run("produce", "Orders", "-m", "order 1")
        assert run("consume", "Orders", "-n", "1") == "order 1\n"
        use_sdk(namesrv)
        server.send_signal(signal.SIGTERM)
        assert server.wait(TIMEOUT_S) == 0
    finally:
        server.kill()
        server.wait()
    say("a broker started, served the commands and the SDK, and stopped on SIGTERM")


def use_sdk(namesrv: str) -> None:
    """Send and read as the README does, and test with the real broker in this process."""
    import asyncio

    from pocketmq.client import Message, Producer, PullConsumer
    from pocketmq.testing import PocketBroker

    async def send_and_read(address: str) -> list[bytes]:
        async with Producer(group="smoke", namesrv=address) as producer:
            await producer.send(Message("Smoke", b"hello"))
        async with PullConsumer(group="smoke", namesrv=address) as consumer:
            return [each.body async for each in consumer.stream("Smoke", start="earliest", stop_at_end=True)]

    assert asyncio.run(send_and_read(namesrv)) == [b"hello"]
    with PocketBroker() as broker:
        assert asyncio.run(send_and_read(broker.namesrv)) == [b"hello"]


def main() -> None:
    """Run every check."""
    check_files()
    check_imports()
    check_commands()


if __name__ == "__main__":
    main()
