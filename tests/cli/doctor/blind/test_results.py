"""The committed rounds: what the page says of them, and seeds that were not used in tuning."""

import json
from pathlib import Path
from typing import Any

from tests.cli.doctor.blind.verdict import table
from tests.cli.doctor.blind_table import NO_POOL, NO_PROMOTION

HERE = Path(__file__).parent
PAGE = Path(__file__).parents[4] / "docs" / "doctor.md"


def rounds(name: str) -> list[dict[str, Any]]:
    """Return the rounds of a run."""
    return [json.loads(line) for line in (HERE / name).read_text().splitlines()]


def test_the_page_shows_the_table_of_the_final_rounds() -> None:
    final = rounds("final.jsonl")
    text = PAGE.read_text()
    assert "\n".join(table(final)) in text
    assert f"{sum(not each['wrong'] for each in final)} of {len(final)} rounds were right" in text


def test_the_page_tells_of_every_cure_that_was_forbidden() -> None:
    """The pool, for another broker than that with the read-only disk; three times the promotion of a dead master's
    slave, which only the row of the other fault forbids.
    """
    forbidden = {
        each["seed"]: [wrong.removeprefix("forbidden: ") for wrong in each["wrong"] if wrong.startswith("forbidden")]
        for each in rounds("final.jsonl")
    }
    found = {seed: cures for seed, cures in forbidden.items() if cures}
    assert found == {80031: [NO_PROMOTION], 80095: [NO_PROMOTION], 80232: [NO_PROMOTION], 80402: [NO_POOL]}
    assert "**Four reports held a cure that a row forbids**" in PAGE.read_text()


def test_no_final_seed_was_used_before() -> None:
    seeds = [{each["seed"] for each in rounds(name)} for name in ("final.jsonl", "tuning.jsonl", "first.jsonl")]
    assert not seeds[0] & (seeds[1] | seeds[2])
    assert len(seeds[0]) == len(rounds("final.jsonl"))
