"""Finding a Java that Spark can start.

Lives here: ``find_java``, ``use_java``. Imports nothing of Spark.

Spark takes JAVA_HOME, else ``java`` from PATH, and fails with a stack trace if that one is too old or missing. This
module searches the usual places, too, and sets JAVA_HOME.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Final

from pocketmq.common.errors import Cause, PocketMQError

JAVA_MIN: Final = 17
"""Spark 4 needs Java 17 or later."""
VECTOR_MODULE: Final = "jdk.incubator.vector"
"""Spark's launcher needs this module; reduced runtimes for embedding lack it."""
INSTALL_COMMAND: Final = "apt-get install openjdk-17-jre-headless"
USUAL_PLACES: Final = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
)
VERSION_WAIT_S: Final = 30


class JavaMissing(PocketMQError):
    """No Java on this machine can run Spark."""

    default_cause = Cause.CONFIG


def find_java(environment: MutableMapping[str, str] | None = None) -> Path:
    """Return the home of a Java 17 or later: JAVA_HOME's, that of PATH, or one in the usual places.

    Raises ``JavaMissing``, which names the unsuitable ones and the package to install.
    """
    refused: list[str] = []
    for home in _candidates(os.environ if environment is None else environment):
        why = why_unfit(home)
        if not why:
            return home
        refused.append(f"{home} {why}")
    raise JavaMissing(
        "Spark cannot start",
        why="; ".join(refused) or "no java in JAVA_HOME, on PATH or in the usual places",
        hint=f"{INSTALL_COMMAND} (or any Java {JAVA_MIN} or later), or set JAVA_HOME",
    )


def use_java() -> Path:
    """Find a Java and set JAVA_HOME of this process, so that Spark uses it. Raises ``JavaMissing``."""
    home = find_java()
    os.environ["JAVA_HOME"] = str(home)
    return home


def why_unfit(home: Path) -> str:
    """Return why Spark cannot run on the Java in ``home``; empty if it can."""
    version, modules = _release(home)
    if not version:
        version = _asked(home)
    if version < JAVA_MIN:
        return f"has Java {version}" if version else "has no java that starts"
    if modules and VECTOR_MODULE not in modules:
        return f"lacks the module {VECTOR_MODULE}"
    return ""


def _candidates(environment: MutableMapping[str, str]) -> Iterator[Path]:
    """Yield homes with a ``bin/java``, each once, in order of preference."""
    seen: set[Path] = set()
    for home in _places(environment):
        real = home.resolve()
        if real not in seen and os.access(real / "bin" / "java", os.X_OK):
            seen.add(real)
            yield real


def _places(environment: MutableMapping[str, str]) -> Iterator[Path]:
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"])
    found = shutil.which("java", path=environment.get("PATH", ""))
    if found:
        yield Path(found).resolve().parent.parent
    for pattern in USUAL_PLACES:
        path = Path(os.path.expanduser(pattern))
        yield from sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))


def _release(home: Path) -> tuple[int, str]:
    """Return the major version and the modules from the file ``release``; 0 and nothing without it."""
    try:
        text = (home / "release").read_text(errors="replace")
    except OSError:
        return 0, ""
    fields = dict(line.partition("=")[::2] for line in text.splitlines())
    return _major(fields.get("JAVA_VERSION", "")), fields.get("MODULES", "")


def _asked(home: Path) -> int:
    """Return the major version that ``java -version`` prints; 0 if it does not start."""
    command = [str(home / "bin" / "java"), "-version"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=VERSION_WAIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return _major(said.stderr.partition("version ")[2]) if said.returncode == 0 else 0


def _major(text: str) -> int:
    """Return 17 for ``"17.0.15"``, 8 for ``"1.8.0_402"``."""
    match = re.match(r'"?(?:1\.)?(\d+)', text)
    return int(match[1]) if match else 0
