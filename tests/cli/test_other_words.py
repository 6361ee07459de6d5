"""Words of other tools lead to commands that exist, and stand for none of ours."""

import re
from typing import Any

import pytest

from pocketmq.cli.app import RootOptions, build_command
from pocketmq.cli.other_words import OTHER_WORDS, ours_for
from tests.docs.blocks import ROOT

ROOT_COMMAND = build_command(RootOptions())


def found(words: list[str]) -> Any:
    """Return the command of these words, the options of the root included; None: there is none."""
    command = ROOT_COMMAND
    for word in words:
        if word.startswith("-"):
            options = {each for parameter in command.params for each in parameter.opts} | {"--help"}
            return command if word in options else None
        command = getattr(command, "commands", {}).get(word)
    return command


@pytest.mark.parametrize("other", OTHER_WORDS)
def test_what_is_meant_exists_and_what_was_typed_does_not(other: str) -> None:
    for ours in OTHER_WORDS[other]:
        assert found(ours.split()) is not None, ours
    *group, word = other.split()
    assert found([*group, word]) is None
    assert not group or found(group) is not None


def test_the_words_of_mqadmin_are_those_of_the_page() -> None:
    """docs/migration.md has the same commands side by side."""
    page = (ROOT / "docs/migration.md").read_text()
    table = page[page.index("| `mqadmin` |") :].partition("\n\n")[0]
    for line in table.splitlines()[2:]:
        theirs, ours = (re.findall(r"`([^`]+)`", cell) for cell in line.split("|")[1:3])
        for word in theirs:
            meant = OTHER_WORDS.get(word, ())
            assert word == "updateAclConfig" or meant, word
            for each in meant:
                assert any(each in text or text.startswith(each.split()[0]) for text in ours), (word, each)


def test_an_unknown_word_means_nothing() -> None:
    assert ours_for(("frobnicate",)) == ""
    assert ours_for(("send",)) == "Did you mean 'pocketmq produce'?"
    assert ours_for(("lock", "send")) == ""
