"""Turns of handshakes, on a clock that the test holds."""

from pocketmq.remoting.handshakes import HANDSHAKES_MAX, HANDSHAKES_OF_HOST, LATE_NS, NS_PER_S, SLOW_NS, Handshakes

BEGIN_NS = 1_000 * NS_PER_S


def begun(handshakes: Handshakes[str], now_ns: int) -> list[str]:
    found = []
    while (caller := handshakes.next(now_ns)) is not None:
        found.append(caller)
    return found


def test_so_many_begin_in_a_second() -> None:
    handshakes: Handshakes[str] = Handshakes(100)
    for at in range(2_000):
        handshakes.join(f"host {at % 500}", f"{at}")
    count = 0
    for ms in range(1_000):
        for caller in begun(handshakes, BEGIN_NS + ms * 1_000_000):
            count += 1
            handshakes.end(f"host {int(caller) % 500}", caller)
    assert 100 <= count <= 100 + LATE_NS * 100 // NS_PER_S


def test_a_late_loop_does_not_make_up_for_all_it_has_missed() -> None:
    handshakes: Handshakes[str] = Handshakes(1_000)
    for at in range(500):
        handshakes.join("host", f"{at}")
    assert len(begun(handshakes, BEGIN_NS)) <= LATE_NS * 1_000 // NS_PER_S + 1
    assert len(begun(handshakes, BEGIN_NS + NS_PER_S)) <= LATE_NS * 1_000 // NS_PER_S + 1


def test_hosts_take_turns() -> None:
    """One that waits behind a flood from another address is second."""
    handshakes: Handshakes[str] = Handshakes(10**9)
    for at in range(1_000):
        handshakes.join("flood", f"f{at}")
    handshakes.join("friend", "friend")
    assert [handshakes.next(BEGIN_NS) for _ in range(3)] == ["f0", "friend", "f1"]


def test_one_host_has_no_more_than_its_share_open() -> None:
    handshakes: Handshakes[str] = Handshakes(10**9)
    for at in range(1_000):
        handshakes.join("flood", f"f{at}")
    assert len(begun(handshakes, BEGIN_NS)) == HANDSHAKES_OF_HOST == len(handshakes)
    handshakes.join("friend", "friend")
    assert begun(handshakes, BEGIN_NS + LATE_NS) == ["friend"]


def test_a_slow_one_gives_way_only_where_others_wait_for_its_place() -> None:
    handshakes: Handshakes[str] = Handshakes(10**9)
    for at in range(HANDSHAKES_MAX):
        handshakes.join(f"host {at}", f"{at}")
    assert len(begun(handshakes, BEGIN_NS)) == HANDSHAKES_MAX
    late_ns = BEGIN_NS + SLOW_NS + 1
    assert handshakes.slow(late_ns) is None
    handshakes.join("friend", "friend")
    assert handshakes.next(late_ns) is None
    assert handshakes.slow(late_ns - 1) is None
    assert handshakes.slow(late_ns) == "0"
    handshakes.end("host 0", "0")
    assert handshakes.slow(late_ns) is None
    assert handshakes.next(late_ns) == "friend"


def test_a_caller_that_is_gone_waits_no_more() -> None:
    handshakes: Handshakes[str] = Handshakes(10**9)
    handshakes.join("host", "a")
    handshakes.join("host", "b")
    handshakes.end("host", "a")
    assert begun(handshakes, BEGIN_NS) == ["b"]
    handshakes.end("host", "b")
    handshakes.end("host", "b")
    assert not handshakes.is_awaited
    assert len(handshakes) == 0
