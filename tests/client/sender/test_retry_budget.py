"""The cost of retries: the rule of the budget, against brokers of every behaviour."""

import random

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.sender.retry_budget import BROKERS_MAX, TOKENS_MAX, RetryBudget, Room


class ModelBroker:
    """Refuses a share of its requests, and counts."""

    def __init__(self, name: str, refuses: float) -> None:
        self.name = name
        self.refuses = refuses
        self.requests = self.stored = self.vain = 0

    def offer(self, rng: random.Random, retry: bool) -> bool:
        self.requests += 1
        if rng.random() < self.refuses:
            self.vain += retry
            return False
        self.stored += 1
        return True


def run(tempers: list[float], sends: int, seed: int, *, width: int = 1) -> tuple[list[ModelBroker], int]:
    """Send ``width`` at a time, round robin, retry at the next broker; return (brokers, sends without a budget)."""
    rng = random.Random(seed)
    budget = RetryBudget(0.1, 10)
    brokers = [ModelBroker(f"b{number}", refuses) for number, refuses in enumerate(tempers)]
    starved = 0
    for turn in range(0, sends, width):
        refused = []
        for number in range(turn, min(turn + width, sends)):
            broker = brokers[number % len(brokers)]
            if broker.offer(rng, retry=False):
                budget.stored(broker.name)
            else:
                refused.append(number)
        for attempt in range(1, 3):
            waiting, refused = refused, []
            while waiting:
                out = []
                for number in list(waiting):  # as many at a time as there are tokens
                    broker = brokers[(number + attempt) % len(brokers)]
                    room = budget.room(broker.name)
                    if room is Room.OPEN:
                        budget.take(broker.name)
                        out.append((number, broker))
                        waiting.remove(number)
                    elif room is Room.EMPTY:
                        starved += 1
                        waiting.remove(number)
                for number, broker in out:
                    if broker.offer(rng, retry=True):
                        budget.give_back(broker.name)
                        budget.stored(broker.name)
                    else:
                        budget.lose(broker.name)
                        refused.append(number)
    return brokers, starved


@given(
    st.lists(st.sampled_from([0.0, 0.02, 0.3, 0.5, 0.9, 1.0]), min_size=1, max_size=4),
    st.integers(0, 300),
    st.integers(0, 2**32),
    st.integers(1, 80),
)
def test_retries_in_vain_are_a_tenth_of_what_is_stored_and_a_floor(
    tempers: list[float], sends: int, seed: int, width: int
) -> None:
    """This holds for each broker, whatever it answers, and for any number of sends in flight."""
    brokers, _ = run(tempers, sends, seed, width=width)
    for broker in brokers:
        assert broker.vain <= 10 + 0.1 * broker.stored
    assert sum(broker.requests for broker in brokers) <= 2 * sends + sum(10 + 0.1 * each.stored for each in brokers)


@given(st.integers(1, 3), st.integers(0, 400), st.integers(0, 2**32), st.integers(1, 80))
def test_where_all_refuse_nothing_is_amplified(count: int, sends: int, seed: int, width: int) -> None:
    """Each broker gets its sends and at most ``floor`` retries, for ever."""
    brokers, _ = run([1.0] * count, sends, seed, width=width)
    assert sum(broker.requests for broker in brokers) <= sends + 10 * count


@given(st.sampled_from([0.3, 1.0]), st.integers(0, 400), st.integers(0, 2**32), st.integers(1, 300))
def test_a_healthy_broker_is_never_starved_of_retries(refuses: float, sends: int, seed: int, width: int) -> None:
    """One of two is down for any length of time: the other one delivers every send."""
    brokers, starved = run([refuses, 0.0], sends, seed, width=width)
    assert starved == 0
    assert sum(broker.stored for broker in brokers) == sends


def test_tokens_come_back_or_are_lost() -> None:
    """Ten floors; one lost, ten stored sends restore it; a lent token means wait, a lost one means empty."""
    budget = RetryBudget(0.1, 1)
    assert budget.room("b") is Room.OPEN
    budget.take("b")
    assert budget.room("b") is Room.WAIT
    budget.give_back("b")
    assert budget.room("b") is Room.OPEN
    budget.take("b")
    budget.lose("b")
    assert budget.room("b") is Room.EMPTY
    for _ in range(9):
        budget.stored("b")
    assert budget.room("b") is Room.EMPTY
    budget.stored("b")
    assert budget.room("b") is Room.OPEN


def test_a_bucket_has_a_limit() -> None:
    """A long good period does not pay for a long bad one."""
    budget = RetryBudget()
    for _ in range(10_000):
        budget.stored("b")
    assert budget.tokens("b") == TOKENS_MAX


def test_without_a_ratio_every_retry_is_free() -> None:
    """RocketMQ's way, for comparison."""
    budget = RetryBudget(None)
    for _ in range(1000):
        budget.take("b")
        budget.lose("b")
    assert budget.room("b") is Room.OPEN


def test_the_number_of_buckets_is_bounded() -> None:
    """Brokers come and go; those with a lent token stay."""
    budget = RetryBudget()
    budget.take("kept")
    for number in range(3 * BROKERS_MAX):
        budget.stored(f"b{number}")
    assert len(budget._buckets) <= BROKERS_MAX
    budget.lose("kept")
    assert budget.tokens("kept") == 9
