"""PocketMQ reads what RocketMQ's classes read from the same JSON; each difference is one of these."""

from typing import Any

import pytest

from docs.fastjson_table import vectors, verdict

DIFFERENCES = {
    "RocketMQ alone": {
        *(
            "subVersion 1.5",
            'subVersion "1,000"',
            "subVersion NaN",
            "subVersion 97L",
            "subVersion +97",
            "subVersion 1.",
        ),
        *("groupName []", 'groupName ["x"]', "groupName {}", 'groupName {"a":1}', "codeSet [null]", "codeSet [1.5]"),
        *("JSON: comment", "JSON: line comment", "JSON: key in another case", "JSON: snake case keys"),
        *("JSON: no clientID", "JSON: undefined", "JSON: new Set"),
    },
    "PocketMQ alone": {'subVersion "97.0"', 'subVersion "97."', "JSON: numeric key", "JSON: object as key"},
    "RocketMQ 5.3 and PocketMQ": {"subVersion true", "subVersion false"},
}


@pytest.mark.parametrize("case", vectors(), ids=lambda case: case["case"])
def test_each_reading_is_rocketmqs_or_a_named_difference(case: dict[str, Any]) -> None:
    """A client that was written against RocketMQ finds its own reading here."""
    _, _, who = verdict(case)
    named = [name for name, cases in DIFFERENCES.items() if case["case"] in cases]
    assert [who] == (named or [who if who in ("both", "refused by both") else "the same reading"])
