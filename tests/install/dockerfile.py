"""Builds the image of a Dockerfile without an engine: its steps, one after the other, on a bootstrapped root.

Holds the parser of the instructions that our Dockerfile uses, ``.dockerignore``, and ``build``. An instruction that is
not known here is an error: the image must not have steps that this leaves out.
"""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.install.namespace import PATH, Namespace

STEP_S: Final = 500
IGNORED: Final = ("EXPOSE", "VOLUME")
"""They tell an engine what to do at a start; the tests look at them in the text."""


@dataclass(slots=True)
class Image:
    """A root file system and how its container starts. ``environment``, ``user``, ``directory``: as in the last stage;
    ``health``: the command of HEALTHCHECK."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    user: str = ""
    directory: str = "/"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)
    stop_signal: str = "SIGTERM"


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield (instruction, rest) with continued lines joined and comments left out."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            yield name.upper(), rest.strip()


def context_files(root: Path) -> Iterator[Path]:
    """Yield what ``.dockerignore`` lets into the context of a build, relative to ``root``: lines with ``!`` after
    ``*``, less what later lines exclude again."""
    lines = [line for line in (root / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*", "the tests know an ignore file that excludes all first"
    excluded = [line for line in lines[1:] if not line.startswith("!")]
    for name in (line[1:] for line in lines if line.startswith("!")):
        place = root / name
        paths = sorted(place.rglob("*")) if place.is_dir() else [place]
        for path in paths:
            relative = path.relative_to(root)
            hidden = any(relative.match(each.removeprefix("**/")) for each in excluded)
            hidden |= any(parent.match(each.removeprefix("**/")) for each in excluded for parent in relative.parents)
            if not hidden and (path.is_symlink() or path.is_file()):
                yield relative


def build(dockerfile: Path, base: Path, work: Path) -> Image:
    """Carry out the steps of ``dockerfile`` below ``work``, each stage on a copy of ``base``; return the last stage.

    ``base`` is the root file system of the image that ARG BASE names.
    """
    stages: dict[str, Image] = {}
    image: Image | None = None
    for name, rest in instructions(dockerfile.read_text()):
        if name == "ARG":
            assert rest.startswith("BASE="), rest
        elif name == "FROM":
            match = re.fullmatch(r"\$\{BASE\}(?: AS (\w+))?", rest)
            assert match is not None, f"FROM {rest}"
            root = work / (match[1] or "image")
            subprocess.run(["cp", "--archive", "--reflink=auto", str(base), str(root)], check=True)
            image = stages[match[1] or ""] = Image(root, {"PATH": PATH})
        elif name not in IGNORED:
            assert image is not None, f"{name} before FROM"
            _step(image, name, rest, dockerfile.parent, stages)
    assert image is not None
    return image


def _step(image: Image, name: str, rest: str, context: Path, stages: Mapping[str, Image]) -> None:
    if name == "RUN":
        steps = f"cd {shlex.quote(image.directory)} && {rest}"
        try:
            Namespace(image.root).run(
                ["/bin/sh", "-c", steps], timeout_s=STEP_S, user=image.user, environment=image.environment
            )
        except subprocess.CalledProcessError as error:
            raise AssertionError(f"RUN {rest}\n{error.output[-4000:]}") from error
    elif name == "COPY":
        _copy(image, rest, context, stages)
    elif name == "ENV":
        for pair in shlex.split(rest):
            key, _, value = pair.partition("=")
            image.environment[key] = value
    elif name == "USER":
        image.user = rest
    elif name == "WORKDIR":
        image.directory = rest
        _inside(image, rest).mkdir(parents=True, exist_ok=True)
    elif name == "STOPSIGNAL":
        image.stop_signal = rest
    elif name == "HEALTHCHECK":
        image.health = _words(rest[rest.index("CMD ") + 4 :])
    elif name in ("ENTRYPOINT", "CMD"):
        setattr(image, "entrypoint" if name == "ENTRYPOINT" else "command", _words(rest))
    else:
        raise ValueError(f"the tests know no instruction {name}")


def _words(rest: str) -> list[str]:
    words = json.loads(rest)  # the form of a shell would put a shell between the engine and the server
    assert isinstance(words, list)
    return [str(word) for word in words]


def _copy(image: Image, rest: str, context: Path, stages: Mapping[str, Image]) -> None:
    words = shlex.split(rest)
    if words[0].startswith("--from="):
        source, target = stages[words[0].removeprefix("--from=")], words[2]
        place = _inside(image, target)
        place.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "--archive", str(_inside(source, words[1])), str(place)], check=True)
        return
    assert words[0] == ".", rest
    place = _inside(image, str(Path(image.directory) / words[1]))
    for relative in context_files(context):
        (place / relative).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(context / relative, place / relative, follow_symlinks=False)


def _inside(image: Image, path: str) -> Path:
    return image.root / path.lstrip("/")
