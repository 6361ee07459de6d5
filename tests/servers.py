"""Real Redis, MariaDB and PostgreSQL servers for tests: on loopback, with a directory of their own, ended by their
process.

They are skipped, with a line that says so, where their packages (``redis-server``, ``mariadb-server``, ``postgresql``)
are missing. In CI that is a failure, unless a package registry kept the program back (tests/ci/programs.py).
"""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

START_S = 60.0
STOP_S = 20.0


def free_port() -> int:
    """Return an unused port of the loopback address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def needs(*programs: str) -> str:
    """Return the path of the first of these programs that exists; if none does, skip the test, or fail it in CI."""
    # Debian keeps PostgreSQL's programs of each version apart: the newest first
    versions = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: path.parent.name.zfill(4), reverse=True
    )
    places = os.pathsep.join(["/usr/sbin", "/usr/libexec", "/usr/bin", *map(str, versions)])
    for program in programs:
        found = shutil.which(program) or shutil.which(program, path=places)
        if found:
            return found
    why = f"{programs[0]} is not installed: this test needs the real server"
    if os.environ.get("CI") and programs[0] not in os.environ.get("POCKETMQ_MAY_LACK", "").split():
        pytest.fail(why, pytrace=False)
    pytest.skip(why)


@contextmanager
def running(
    command: list[str],
    directory: Path,
    is_up: Callable[[], bool],
    user: str | None = None,
    stop: signal.Signals = signal.SIGTERM,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the block ends, which sends it ``stop``; show its output when it does not start."""
    with (directory / "output").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=directory, user=user)
    try:
        give_up_s = time.monotonic() + START_S
        while not is_up():
            if process.poll() is not None or time.monotonic() > give_up_s:
                raise RuntimeError(f"{command[0]} did not start: {(directory / 'output').read_text()[-2000:]}")
            time.sleep(0.02)
        yield process
    finally:
        process.send_signal(stop)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def redis_at(directory: Path, port: int, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a Redis server on a port, with an append-only file in ``directory``."""
    options = {"port": port, "bind": "127.0.0.1", "dir": directory, "save": "", "appendonly": "yes", **settings}
    command = [needs("redis-server"), *(text for name, value in options.items() for text in (f"--{name}", str(value)))]

    def is_up() -> bool:
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False

    with running(command, directory, is_up) as process:
        yield process


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the URL of a Redis server."""
    port = free_port()
    with redis_at(tmp_path_factory.mktemp("redis"), port):
        yield f"redis://127.0.0.1:{port}/0"


@pytest.fixture(scope="session")
def mariadb_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the SQLAlchemy URL of an empty database in a MariaDB server."""
    program = needs("mariadbd", "mysqld")
    make = needs("mariadb-install-db", "mysql_install_db")
    pymysql = pytest.importorskip("pymysql")
    directory, port = tmp_path_factory.mktemp("mariadb"), free_port()
    common = ["--no-defaults", f"--datadir={directory / 'data'}"]
    user = ["--user=root"] if os.geteuid() == 0 else []
    small = ["--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M"]
    done = subprocess.run(
        [make, *common, *user, *small, "--auth-root-authentication-method=normal", "--skip-test-db"],
        capture_output=True,
        timeout=START_S,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    command = [program, *common, *user, *small, f"--port={port}", "--bind-address=127.0.0.1"]
    command += [f"--socket={directory / 's'}", "--skip-grant-tables", "--skip-networking=0"]

    def is_up() -> bool:
        try:
            pymysql.connect(host="127.0.0.1", port=port, user="root", connect_timeout=1).close()
        except pymysql.err.OperationalError:
            return False
        return True

    with running(command, directory, is_up):
        connection = pymysql.connect(host="127.0.0.1", port=port, user="root")
        with connection, connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE pocketmq CHARACTER SET utf8mb4")
        yield f"mysql+pymysql://root@127.0.0.1:{port}/pocketmq"


@contextmanager
def postgres_at(directory: Path, port: int) -> Iterator[str]:
    """Run a PostgreSQL server on a port; yield the URL of its database. Its data stay in ``directory``.

    PostgreSQL refuses to run as root: then the server runs as ``postgres``, or as ``nobody``.
    """
    psycopg = pytest.importorskip("psycopg")
    program, make = needs("postgres"), needs("initdb")
    user = None
    if os.geteuid() == 0:
        user = next(name for name in ("postgres", "nobody") if name in {each.pw_name for each in pwd.getpwall()})
        shutil.chown(directory, user)
    data = directory / "data"
    if not data.exists():
        command = [make, f"--pgdata={data}", "--username=pocketmq", "--auth=trust", "--no-sync", "--encoding=UTF8"]
        done = subprocess.run(command, capture_output=True, timeout=START_S, text=True, user=user, cwd=directory)
        assert done.returncode == 0, done.stdout + done.stderr
    settings = {"port": port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off"}
    command = [
        program,
        "-D",
        str(data),
        *(text for name, value in settings.items() for text in ("-c", f"{name}={value}")),
    ]
    where = f"host=127.0.0.1 port={port} user=pocketmq dbname=postgres"

    def is_up() -> bool:
        try:
            psycopg.connect(where, connect_timeout=1).close()
        except psycopg.OperationalError:
            return False
        return True

    # at SIGTERM it would wait until its clients have gone, which are ours; it was killed after STOP_S, each time
    with running(command, directory, is_up, user, stop=signal.SIGINT):
        yield f"postgresql://pocketmq@127.0.0.1:{port}/postgres"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """Yield the URL of an empty database in a PostgreSQL server."""
    # not below pytest's directory, which only its own user may enter
    directory = tempfile.TemporaryDirectory(prefix="pocketmq-postgres-")
    with directory, postgres_at(Path(directory.name), free_port()) as url:
        yield url
