"""Whether turns are cut, decided from times alone."""

from pocketmq.client.producer.overlap import NEVER, PAUSE_NS, PERIOD, TRIAL, WINDOW_RECORDS, Overlap


class Machine:
    """Sends turns of 64 records; a record takes ``whole_ns``, in turns with a cut ``cut_ns``."""

    def __init__(self, whole_ns: int, cut_ns: int) -> None:
        self.whole_ns, self.cut_ns = whole_ns, cut_ns
        self.overlap = Overlap()
        self.now_ns = 10**12
        self.overlap.turn(64, 64, self.now_ns)

    def windows(self, count: int) -> list[bool]:
        """Send so many windows; return of each whether its turns were cut, in the middle."""
        seen = []
        for _ in range(count):
            for turn in range(WINDOW_RECORDS // 64):
                cuts = self.overlap.cut_at != NEVER
                if turn == 30:
                    seen.append(cuts)
                self.now_ns += 64 * (self.cut_ns if cuts else self.whole_ns)
                self.overlap.turn(64, 64, self.now_ns)
        return seen


def test_a_comparison_takes_turns_of_both_kinds() -> None:
    """Without and with a cut, one after the other; what load comes and goes meets both."""
    machine = Machine(10_000, 10_000)
    assert machine.windows(TRIAL) == [False, True] * (TRIAL // 2)
    assert machine.overlap.cut_at == NEVER


def test_turns_are_cut_in_half_where_that_is_faster() -> None:
    """By more than the noise."""
    for cut_ns, cuts in ((8_000, True), (9_500, False), (12_000, False)):
        machine = Machine(10_000, cut_ns)
        machine.windows(TRIAL)
        assert machine.overlap.cut_at == (32 if cuts else NEVER)
        assert machine.windows(PERIOD - TRIAL) == [cuts] * (PERIOD - TRIAL)


def test_the_comparison_is_repeated() -> None:
    """A cut that does not pay any more ends; one that pays a little goes on."""
    machine = Machine(10_000, 8_000)
    machine.windows(PERIOD)
    machine.cut_ns = 9_500
    machine.windows(PERIOD)
    assert machine.overlap.cut_at == NEVER  # the first window of a comparison
    machine.windows(TRIAL)
    assert machine.overlap.cut_at == 32
    machine.windows(PERIOD - TRIAL)
    machine.cut_ns = 10_500
    machine.windows(TRIAL)
    assert machine.overlap.cut_at == NEVER


def test_a_pause_of_the_application_is_not_measured() -> None:
    """The window begins again behind it."""
    machine = Machine(10_000, 8_000)
    for _ in range(20):
        machine.overlap.turn(64, 64, machine.now_ns)
        machine.now_ns += PAUSE_NS + 1
    assert machine.overlap.cut_at == NEVER
    assert machine.windows(TRIAL + 3)[-2:] == [True, True]


def test_small_parts_are_never_cut_off() -> None:
    """Half of what was in flight must be worth a frame."""
    overlap, now_ns = Overlap(), 10**12
    for _ in range(10_000):
        now_ns += 200_000
        overlap.turn(20, 20, now_ns)
        assert overlap.cut_at == NEVER
