"""A started container of an image: a process in namespaces of its own, and commands beside it.

Holds ``Container`` and ``started``.
"""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.install.dockerfile import Image
from tests.install.namespace import CHROOT, Namespace

TIMEOUT_S: Final = 60


class Container:
    """A started container: the first process of its namespaces, and commands beside it."""

    def __init__(self, process: "subprocess.Popen[str]", image: Image) -> None:
        self.process = process
        self.image = image
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        give_up_s = time.monotonic() + TIMEOUT_S
        while not (found := children.read_text().split()):
            assert time.monotonic() < give_up_s, "no process was started"
            time.sleep(0.01)
        self.first = int(found[0])

    def ready(self) -> str:
        """Wait for the ready line."""
        assert self.process.stdout is not None
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if line.startswith("ready "):
                return line
        raise AssertionError("it ended: " + "".join(lines))

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run a command in the container, as its user, as ``docker exec`` does."""
        image = self.image
        variables = {"HOME": "/data", **image.environment}
        enter = ["nsenter", f"--target={self.first}", "--mount", "--pid", "--uts", "--ipc", "--net"]
        enter += ["env", "-i", *(f"{name}={value}" for name, value in variables.items())]
        enter += [CHROOT, f"--userspec={image.user}", str(image.root), *arguments]
        done = subprocess.run(enter, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert done.returncode == code, (arguments, done.stdout, done.stderr)
        return done.stdout

    def status(self, name: str) -> list[str]:
        """Return a line of the first process's status."""
        text = Path(f"/proc/{self.first}/status").read_text()
        return next(line for line in text.splitlines() if line.startswith(f"{name}:")).split()[1:]


@contextlib.contextmanager
def started(
    image: Image,
    data: Path,
    *command: str,
    environment: Mapping[str, str] | None = None,
    hosts: Path | None = None,
) -> Iterator[Container]:
    """Start the image's entry point with ``command``; ``data`` is its volume, ``hosts`` its ``/etc/hosts``."""
    uid = int(image.user.partition(":")[0])
    os.chown(data, uid, uid)
    binds = {data: "/data", **({hosts: "/etc/hosts"} if hosts is not None else {})}
    namespace = Namespace(image.root, binds, own_network=True)
    arguments = namespace.command(
        [*image.entrypoint, *(command or image.command)],
        user=image.user,
        directory=image.directory,
        environment={**image.environment, "HOME": "/data", **(environment or {})},
    )
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield Container(process, image)
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
