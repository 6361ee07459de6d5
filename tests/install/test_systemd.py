"""The unit under a real systemd, with all its limits and hardening.

systemd is the first process of its own namespaces, on the root file system of the image, where pip has installed the
package as docs/deployment.md says. Skipped where it does not start there, as in an unprivileged container.
"""

import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.install.dockerfile import Image
from tests.install.namespace import Namespace

pytestmark = [pytest.mark.soak, pytest.mark.slow, pytest.mark.timeout(1800)]

UNIT = Path(__file__).resolve().parents[2] / "conf" / "systemd" / "pocketmq.service"
BOOT_S = 60.0
INSTALL_S = 300.0
TIMEOUT_S = 100.0
BOOT = """set -e
mount --bind {root} {root}
mount -t proc proc {root}/proc
mount -t sysfs sysfs {root}/sys
mount -t cgroup2 cgroup2 {root}/sys/fs/cgroup
for place in run dev; do mount -t tmpfs -o mode=755 tmpfs {root}/$place; done
mount -t tmpfs tmpfs {root}/tmp
for device in null zero full random urandom tty; do
  touch {root}/dev/$device; mount --bind /dev/$device {root}/dev/$device
done
mkdir {root}/dev/shm {root}/dev/pts
mount -t tmpfs tmpfs {root}/dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts {root}/dev/pts
ln -s pts/ptmx {root}/dev/ptmx
ip link set lo up
cd {root}; mkdir -p .old; pivot_root . .old; umount -l /.old
exec env -i container=other PATH={path} /lib/systemd/systemd --system --unit=multi-user.target
"""


class Machine:
    """A booted root file system. ``first``: systemd's process on the host."""

    def __init__(self, root: Path, first: int) -> None:
        self.root = root
        self.first = first

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run a command inside."""
        enter = ["nsenter", f"--target={self.first}", "--mount", "--pid", "--uts", "--ipc", "--net", "--root", "--wd=/"]
        return subprocess.run(
            [*enter, *arguments],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            env={"PATH": os.defpath},
        )

    def must(self, *arguments: str) -> str:
        """Run a command that has to succeed; return its output."""
        done = self.run(*arguments)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr, self.journal())
        return done.stdout

    def journal(self) -> str:
        return self.run("journalctl", "--no-pager", "--output=cat", "--unit=pocketmq.service", "--lines=40").stdout

    def show(self, name: str) -> str:
        return self.must("systemctl", "show", f"--property={name}", "--value", "pocketmq").strip()

    def main_process(self) -> int:
        """Return the host's id of the unit's process."""
        inside = self.show("MainPID")
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                ids = next(line for line in status.read_text().splitlines() if line.startswith("NSpid:")).split()[1:]
                if len(ids) > 1 and ids[-1] == inside and os.readlink(status.parent / "ns/pid") == self.pid_namespace():
                    return int(ids[0])
            except (OSError, StopIteration):  # it has ended meanwhile
                continue
        raise AssertionError(f"no process {inside} of the machine")

    def pid_namespace(self) -> str:
        return os.readlink(f"/proc/{self.first}/ns/pid")


def until(condition: Callable[[], object], timeout_s: float) -> bool:
    """Wait for a condition; return whether it came."""
    give_up_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > give_up_s:
            return False
        time.sleep(0.05)
    return True


@pytest.fixture(scope="module")
def machine(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    place = tmp_path_factory.mktemp("machine")
    root = place / "root"
    process: subprocess.Popen[bytes] | None = None
    try:
        subprocess.run(["cp", "--archive", "--reflink=auto", str(image.root), str(root)], check=True)
        install = "apt-get update && apt-get install --yes --no-install-recommends systemd"
        Namespace(root).run(["/bin/sh", "-c", install], timeout_s=INSTALL_S)
        shutil.copy(UNIT, root / "etc/systemd/system")
        script = BOOT.format(root=shlex.quote(str(root)), path="/usr/sbin:/usr/bin:/sbin:/bin")
        kinds = ["--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc", "--net", "--cgroup"]
        process = subprocess.Popen(
            ["unshare", *kinds, "/bin/sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        if not until(lambda: children.read_text().split(), BOOT_S):
            pytest.skip("no process in a namespace of its own")
        machine = Machine(root, int(children.read_text().split()[0]))
        running = ("running", "degraded")  # degraded: no kernel modules to load
        if not until(lambda: machine.run("systemctl", "is-system-running").stdout.strip() in running, BOOT_S):
            process.kill()
            said = b"" if process.stdout is None else process.stdout.read()
            pytest.skip(f"systemd does not start here: {said.decode(errors='replace')[-300:]}")
        yield machine
    finally:
        if process is not None:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
        shutil.rmtree(place)


def test_the_unit_starts_survives_a_kill_and_stops(machine: Machine) -> None:
    """``systemctl start`` returns when the ports serve; the store outlives kill -9; a stop is clean."""
    assert machine.run("systemd-analyze", "verify", "--man=no", "/etc/systemd/system/pocketmq.service").stderr == ""
    machine.must("systemctl", "start", "pocketmq")
    assert machine.show("StatusText").startswith("ready namesrv=127.0.0.1:9876 broker=127.0.0.1:10911")
    first = machine.main_process()
    status = Path(f"/proc/{first}/status").read_text()
    assert "\nCapEff:\t0000000000000000\n" in status
    assert "\nNoNewPrivs:\t1\n" in status
    assert "\nSeccomp:\t2\n" in status
    assert "\nUid:\t10911\t10911\t10911\t10911\n" in status
    machine.must("/opt/pocketmq/bin/pocketmq", "produce", "Orders", "-m", "order 1")
    os.kill(first, signal.SIGKILL)
    assert until(lambda: machine.show("NRestarts") == "1" and machine.show("ActiveState") == "active", TIMEOUT_S)
    assert machine.must("/opt/pocketmq/bin/pocketmq", "consume", "Orders", "-n", "1") == "order 1\n"
    machine.must("systemctl", "stop", "pocketmq")
    assert (machine.show("Result"), machine.show("ExecMainStatus")) == ("success", "0")
    assert not (machine.root / "var/lib/pocketmq/abort").exists(), "the store was not closed"


def test_write_buffers_survive_inside_the_hardening(machine: Machine) -> None:
    """They are in /dev/shm, which the unit has to reach; Python and NumPy make no call that it forbids."""
    options = (
        'OPTIONS="--profile small --data-dir /var/lib/pocketmq/pool --set store.transient_store_pool_enable=true"\n'
    )
    (machine.root / "etc/default/pocketmq").write_text(options)
    try:
        machine.must("systemctl", "start", "pocketmq")
        assert machine.must("/bin/sh", "-c", "ls /dev/shm").startswith("pocketmq-")
        assert "write_buffers_do_not_survive" not in machine.journal()
    finally:
        (machine.root / "etc/default/pocketmq").unlink()
        machine.run("systemctl", "stop", "pocketmq")


def test_a_wrong_setting_is_not_tried_again(machine: Machine) -> None:
    (machine.root / "etc/default/pocketmq").write_text("POCKETMQ_BROKER__LISTEN_PORT=no\n")
    try:
        assert machine.run("systemctl", "start", "pocketmq").returncode != 0
        assert (machine.show("Result"), machine.show("ExecMainStatus")) == ("exit-code", "2")
        assert machine.show("ActiveState") == "failed"
        assert "listen_port" in machine.journal()
    finally:
        (machine.root / "etc/default/pocketmq").unlink()
        machine.run("systemctl", "reset-failed", "pocketmq")
