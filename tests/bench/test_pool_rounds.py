"""The pool's rounds: those in which the generator was late are discarded and counted."""

import pytest

from bench.own.broker import pool


def test_a_round_with_a_late_generator_is_discarded_and_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole round: its kinds are compared with each other. The kinds take turns at being the first."""
    monkeypatch.setattr(pool, "ROUNDS", 3)
    monkeypatch.setattr(pool, "ROUNDS_MAX", 5)
    measured: list[str] = []

    def measure(kind: str) -> dict[str, object]:
        measured.append(kind)
        return {"lag_ms_max": 10.5 if len(measured) == 2 else 10.0}

    good, discarded = pool.rounds(measure)
    assert (len(good), discarded) == (3, 1)
    assert measured[::3] == ["off", "surviving", "anonymous", "off"]
    assert all(found.keys() == set(pool.POOLS) for found in good)


def test_a_machine_that_is_always_late_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "ROUNDS_MAX", 4)
    assert pool.rounds(lambda kind: {"lag_ms_max": 11.0}) == ([], 4)
