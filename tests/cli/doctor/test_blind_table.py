"""The table of the blind test names findings that exist, and cures that a report can hold."""

import re
from pathlib import Path

from pocketmq.common.refusals import REFUSALS
from tests.cli.doctor.blind_table import FAULTS


def known_keys() -> set[str]:
    """Return the keys that the page lists, and those made of a cause."""
    page = (Path(__file__).parents[3] / "docs" / "doctor.md").read_text()
    listed = set(re.findall(r"`([a-z]+(?:-[a-z]+)*)", page.partition("## All keys")[2]))
    return listed | {f"refused-{cause.value}".replace("_", "-") for cause in REFUSALS} | {"refused-requests-heart-beat"}


def test_there_are_twenty_faults_each_with_a_name_of_its_own() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) == 21
    assert [fault.name for fault in FAULTS if not fault.accepted] == ["nothing"]
    assert {fault.means for fault in FAULTS} == {"signal", "namespace", "file system", "settings", "client"}


def test_each_accepted_finding_is_one_of_the_doctors() -> None:
    known = known_keys()
    for fault in FAULTS:
        assert fault.accepted.keys() <= known, fault.name


def test_a_forbidden_cure_is_worded_as_the_doctor_would() -> None:
    """A setting in the form of its advice, or a command."""
    for cure in {cure for fault in FAULTS for cure in fault.forbidden}:
        assert re.fullmatch(r"pocketmq [\w ]+|\w+ = \w+ →( \w+)?", cure)
