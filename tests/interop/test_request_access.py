"""The recorded needs of request codes are the annotations in RocketMQ's jar."""

import re
import subprocess
import zipfile
from pathlib import Path

from tests.interop.toolchain import classpath
from tests.remoting.protocol.test_access import FILE

ACTION = re.compile(r"RocketMQAction\(\n((?:.*\n)*?)\s*\)")
RESOURCE = re.compile(r"\s+value=Lorg/apache/rocketmq/common/resource/ResourceType;\.(\w+)")


def needs_of(dump: str) -> tuple[int, str] | None:
    """Read what ``javap -v`` says of one class: (code, its needs as the file has them); None without an action."""
    action = ACTION.search(dump)
    if action is None:
        return None
    code = int(re.findall(r"value=(-?\d+)", action[1])[0])
    actions = "|".join(re.findall(r"Action;\.(\w+)", action[1]))
    places, field = [], ""
    for line in dump[dump.find("{\n") :].splitlines():
        if member := re.match(r"^  (?:private|protected|public)? ?\S+ (\w+);$", line):
            field = member[1]
        if resource := RESOURCE.match(line):
            places.append(f"{resource[1]}:{field}")
    if not places and "ResourceType;.CLUSTER" in action[1]:
        places = ["CLUSTER:"]
    return code, ", ".join(f"{place} {actions}" for place in places)


def test_the_recorded_needs_are_those_of_the_jar() -> None:
    """tests/vectors/rocketmq-request-access.txt, which the tests without Java use."""
    path = classpath("client-5.3")
    jar = next(part for part in path.split(":") if Path(part).name.startswith("rocketmq-remoting-5.3"))
    names = [
        name for name in zipfile.ZipFile(jar).namelist() if "/protocol/header/" in name and name.endswith(".class")
    ]
    classes = [name.removesuffix(".class").replace("/", ".") for name in names]
    said = subprocess.run(
        ["javap", "-v", "-p", "-cp", path, *classes], capture_output=True, text=True, timeout=120, check=True
    ).stdout
    of_jar = dict(filter(None, map(needs_of, re.split(r"(?m)^Classfile ", said)[1:])))
    recorded = {}
    for line in FILE.read_text().splitlines():
        code, source, rest = (*line.split(" ", 2), "")[:3]
        if source == "annotation":
            recorded[int(code)] = rest
    assert len(recorded) > 70
    assert {code: of_jar[code] for code in recorded} == recorded
    assert set(of_jar) <= {int(line.split(" ")[0]) for line in FILE.read_text().splitlines()}
