"""Commands inside another root file system, in namespaces of their own: what a container is, without its engine.

Holds ``Namespace``: mounts, processes and host name of its own, the network shared or its own, ended as a whole.
Needs root, ``unshare`` and ``chroot`` (util-linux, coreutils).
"""

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
CERTIFICATES_INSIDE: Final = "/run/certificates-of-the-host.crt"
"""Not where the root has its own: a package replaces that file."""
KEPT: Final = (
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_DEFAULT_TIMEOUT"),
)
"""Variables of the host that a build needs to reach registries, as an engine's build has them."""
CHROOT: Final = shutil.which("chroot", path="/usr/sbin:/usr/bin:/sbin:/bin") or "chroot"
"""By its path: the variables of an image need not lead to it."""
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def need_namespaces() -> None:
    """Skip the test where this user may make no namespaces."""
    if os.geteuid() != 0:
        pytest.skip("a root file system is entered by root only")
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not installed (util-linux)")
    done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no namespaces here: {done.stderr.decode().strip()}")


@dataclass(frozen=True, slots=True)
class Namespace:
    """A root file system. ``binds``: host path → path inside; ``own_network``: only a loopback device, which is up."""

    root: Path
    binds: Mapping[Path, str] = field(default_factory=dict)
    own_network: bool = False

    @staticmethod
    def environment() -> dict[str, str]:
        """Return the variables of a clean environment on the host: no PYTHONPATH, no setting of PocketMQ."""
        return {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("POCKETMQ_", "PYTHON", "VIRTUAL_ENV"))
        }

    def command(
        self,
        arguments: Sequence[str],
        *,
        user: str = "",
        directory: str = "/",
        environment: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Return the host's command that runs ``arguments`` inside as the first process of the namespace."""
        mounts = [f"mount --bind {shlex.quote(str(self.root))} {shlex.quote(str(self.root))}"]
        mounts.append(f"mount -t proc proc {self._inside('/proc')}")
        mounts.append(f"mount -t tmpfs tmpfs {self._inside('/dev')}")
        for device in ("null", "zero", "random", "urandom", "full"):
            path = self._inside(f"/dev/{device}")
            mounts.append(f"touch {path} && mount --bind /dev/{device} {path}")
        mounts.append(f"mkdir {self._inside('/dev/shm')} && mount -t tmpfs tmpfs {self._inside('/dev/shm')}")
        for source, inside in {Path("/etc/resolv.conf"): "/etc/resolv.conf", **self.binds}.items():
            place = self._inside(inside)
            mounts.append(
                f"{{ [ -e {place} ] || {'mkdir -p' if source.is_dir() else 'touch'} {place}; }}"
                f" && mount --bind {shlex.quote(str(source))} {place}"
            )
        if self.own_network:
            mounts.append("ip link set lo up")
        variables = {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8", **(environment or {})}
        enter = ["env", "-i", *(f"{name}={value}" for name, value in variables.items())]
        enter += [CHROOT, *([f"--userspec={user}"] if user else []), str(self.root)]
        enter += ["/bin/sh", "-c", f"cd {shlex.quote(directory)} && exec {shlex.join(arguments)}"]
        script = " && ".join([*mounts, f"exec {shlex.join(enter)}"])
        kinds = ["--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc"]
        return ["unshare", *kinds, *(["--net"] if self.own_network else []), "/bin/sh", "-c", script]

    def _inside(self, path: str) -> str:
        return shlex.quote(f"{self.root}{path}")

    def run(
        self,
        arguments: Sequence[str],
        *,
        timeout_s: float,
        user: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> str:
        """Run to the end with the registries of the host; return the output. Raise ``CalledProcessError``."""
        variables = {name: os.environ[name] for name in KEPT if name in os.environ}
        binds = dict(self.binds)
        if CERTIFICATES.exists():
            binds[CERTIFICATES] = CERTIFICATES_INSIDE
            variables |= {"PIP_CERT": CERTIFICATES_INSIDE, "SSL_CERT_FILE": CERTIFICATES_INSIDE}
        namespace = Namespace(self.root, binds, self.own_network)
        done = subprocess.run(
            namespace.command(arguments, user=user, environment={**variables, **(environment or {})}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode != 0:
            raise subprocess.CalledProcessError(done.returncode, list(arguments), done.stdout)
        return done.stdout
