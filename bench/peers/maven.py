"""Java for the servers that need it: class paths by Maven, kept in the cache, and compiling our own worker.

Lives here: ``class_path``, ``compiled``, options for every JVM.
"""

import hashlib
import os
import shutil
from pathlib import Path

from bench.peers.base import Unavailable, cache_directory, run_tool

SOURCES = Path(__file__).with_name("java")
HEAP = os.environ.get("BENCH_JAVA_HEAP", "1g")
"""Heap of a server's JVM, minimum and maximum alike."""
INSTALL_HINT = "apt-get install openjdk-17-jdk-headless maven"


def require_java() -> None:
    """Raise ``Unavailable`` unless java, javac and mvn are there."""
    missing = [name for name in ("java", "javac", "mvn") if not shutil.which(name)]
    if missing:
        raise Unavailable(f"{', '.join(missing)} missing: {INSTALL_HINT}")


def _key(*paths: Path) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]


def class_path(kind: str) -> str:
    """Return the class path that ``java/KIND.xml`` asks for, resolved once for each version of that file."""
    return resolved(kind, (SOURCES / f"{kind}.xml").read_text())


def resolved(kind: str, pom: str) -> str:
    """Return the class path that a POM asks for, resolved once for each text of it. Raises ``Unavailable``."""
    require_java()
    directory = cache_directory() / f"{kind}-{hashlib.sha256(pom.encode()).hexdigest()[:16]}"
    kept = directory / "classpath"
    if kept.exists():
        text = kept.read_text().strip()
        if all(Path(jar).exists() for jar in text.split(":")):
            return text
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "pom.xml").write_text(pom)
    command = ["mvn", "-q", "-B", "dependency:build-classpath", f"-Dmdep.outputFile={kept}"]
    run_tool(command, None, f"Maven cannot resolve {kind}", directory)
    return kept.read_text().strip()


def compiled(kind: str, source: str) -> str:
    """Return a class path that holds ``java/SOURCE`` compiled against that of ``kind``."""
    path = class_path(kind)
    file = SOURCES / source
    directory = cache_directory() / f"{file.stem}-{_key(file, SOURCES / f'{kind}.xml')}"
    if not (directory / f"{file.stem}.class").exists():
        directory.mkdir(parents=True, exist_ok=True)
        run_tool(["javac", "-cp", path, "-d", str(directory), str(file)], None, f"{source} does not compile")
    return f"{directory}:{path}"


def java(
    path: str, main: str, *arguments: str, heap: str = HEAP, properties: dict[str, str] | None = None
) -> list[str]:
    """Return the command that runs a main class."""
    defined = [f"-D{key}={value}" for key, value in (properties or {}).items()]
    opened = [
        f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.lang", "java.nio", "sun.nio.ch", "java.util")
    ]
    exported = [
        "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
        "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    ]
    return ["java", f"-Xms{heap}", f"-Xmx{heap}", *opened, *exported, *defined, "-cp", path, main, *arguments]
