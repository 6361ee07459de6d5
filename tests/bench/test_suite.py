"""A benchmark run: peers take turns, a failure stops no other peer, the entry checks names and options."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from bench import __main__ as entry
from bench import own
from bench.base.histogram import Latencies
from bench.base.results import ResultFile
from bench.cases import CASES
from bench.comparison.case import FULL, QUICK, Bench, Case, Scale, Variant, measurements
from bench.comparison.suite import Suite, clock_text, estimate_s, plan
from bench.peers import PEERS, Peer
from bench.peers.base import Unavailable
from bench.peers.redis import RedisServer


class Fake(RedisServer):
    """A server that is installed and never started."""

    name = "fake"

    @classmethod
    def obtain(cls) -> str:
        return "1"


class Missing(RedisServer):
    """A server that cannot be installed."""

    name = "missing"

    @classmethod
    def obtain(cls) -> str:
        raise Unavailable("no such\npackage: install it")


def peer(name: str, server: type[RedisServer] = Fake) -> Peer:
    return Peer(name, name.upper(), server, {"async": "yes"}, frozenset({"message"}))


class Counting(Case):
    """Count which peer was measured; ``bad`` fails."""

    name = "counting"
    title = "Counting"
    text = "."
    order: ClassVar[list[str]] = []

    def variants(self, scale: Scale) -> list[Variant]:
        return [Variant(label, {"size_bytes": 1}) for label in ("first", "second", "third", "fourth")]

    def refuses(self, peer: Peer, variant: Variant) -> str:
        return "it will not" if peer.name == "unwilling" else ""

    def prepare(self, bench: Bench, peer: Peer, variant: Variant) -> None:
        if peer.name == "bad":
            raise RuntimeError("out\nof order")

    def measure(self, bench: Bench, peer: Peer, variant: Variant) -> dict[str, Any]:
        self.order.append(f"{variant.label} {peer.name}")
        if peer.name == "breaks":
            raise RuntimeError("it broke")
        return {"messages_per_s": 5}

    def finish(self, bench: Bench, peer: Peer, variant: Variant) -> None:
        """Do nothing: there is no server to stop."""


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[list[Peer]], ResultFile]:
    """Return a function that runs the case with some peers, without floors and servers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bench.comparison.floors.rows", lambda directory, quick: iter(()))
    Counting.order.clear()

    def start(peers: list[Peer]) -> ResultFile:
        results = ResultFile(tmp_path / "results" / "run.jsonl")
        Suite(Scale(False, 2, 1.0, 1.0), [Counting()], peers, results).run()
        results.close()
        return results

    return start


def test_rounds_go_in_turn_and_begin_with_another_each_time(quiet: Callable[[list[Peer]], ResultFile]) -> None:
    """The order is A B B A, so a disturbance of the machine hits all peers alike."""
    quiet([peer("a"), peer("b")])
    assert Counting.order[:4] == ["first a", "first b", "first b", "first a"]
    assert len(Counting.order) == 16


def test_a_failing_peer_stops_no_other(quiet: Callable[[list[Peer]], ResultFile]) -> None:
    """Each failure is recorded; after three the peer is left out."""
    results = quiet([peer("bad"), peer("a"), peer("breaks")])
    assert sum(line.get("peer") == "a" for line in results.lines) == 8
    failed = [line for line in results.lines if line["kind"] == "failed"]
    assert [line["peer"] for line in failed] == ["bad", "breaks"] * 3
    assert failed[0]["why"] == "RuntimeError: out of order"
    assert results.lines[-1]["kind"] == "end"


def test_what_cannot_be_had_or_done_is_one_line(
    quiet: Callable[[list[Peer]], ResultFile], capsys: pytest.CaptureFixture[str]
) -> None:
    """One line names a missing server, one line each refused variant; the run's directory is removed."""
    results = quiet([peer("gone", Missing), peer("unwilling"), peer("a")])
    skipped = [line for line in results.lines if line["kind"] == "skip"]
    assert [line["why"] for line in skipped] == ["no such package: install it", *["it will not"] * 4]
    assert "without GONE: no such package: install it\n" in capsys.readouterr().err
    assert not list(Path().glob("bench-data-*"))


def test_the_estimates_keep_the_promises() -> None:
    """The whole run takes less than 45 minutes, a quick one less than five."""
    assert estimate_s(plan(CASES, FULL), PEERS, FULL) < 45 * 60
    assert estimate_s(plan(CASES, QUICK), PEERS, QUICK) < 5 * 60


@pytest.mark.parametrize("scale", [FULL, QUICK])
def test_variants_of_a_case_have_different_names_and_topics(scale: Scale) -> None:
    """Two variants or peers on one topic would read each other's messages."""
    names: list[str] = []
    for case, variant in plan(CASES, scale):
        names += [Bench.topic(None, case, each, variant) for each in PEERS]  # type: ignore[arg-type]
    assert len(names) == len(set(names))
    assert all(len(name) <= 100 for name in names)


def test_cases_and_own_cases_share_no_name() -> None:
    """``python -m bench NAME`` must mean one thing."""
    assert not {case.name for case in CASES} & set(own.CASES)
    for module, _ in own.CASES.values():
        text = Path(own.__file__).parent.joinpath(*module.split(".")).with_suffix(".py").read_text()
        assert "\ndef run() -> Iterator[" in text


def test_peers_are_chosen_by_name() -> None:
    """The options select the named peers, or all others; an unknown name is an error."""
    assert entry.chosen_peers("redis,pocketmq", "") == ["redis", "pocketmq"]
    assert "nats" not in entry.chosen_peers("", "nats")
    with pytest.raises(ValueError, match="no such peer: rabbit"):
        entry.chosen_peers("rabbit", "")


def test_an_answer_becomes_measurements() -> None:
    """Rates, CPU per message and percentiles become measurements; other fields of the answer are kept."""
    text = Latencies.of_ns([2_000_000] * 10).encode()
    answer = {"count": 1000, "elapsed_s": 0.5, "client_cpu_s": 0.01, "server_cpu_s": 0.02}
    out = measurements({**answer, "latency_hdr": text, "lag_ms_max": 3}, 1024)
    assert (out["messages_per_s"], out["client_cpu_us"], out["server_cpu_us"]) == (2000, 10, 20)
    assert out["p50_ms"] == pytest.approx(2, rel=0.01)
    assert (out["lag_ms_max"], out["latency_hdr"]) == (3, text)


def test_times_read_as_a_person_says_them() -> None:
    """Times from one minute on show minutes."""
    assert (clock_text(59.6), clock_text(5), clock_text(125)) == ("1 min 00 s", "5 s", "2 min 05 s")
