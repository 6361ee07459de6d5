"""Tests of the stacks of threads: where each stands, also while it runs."""

import threading
from pathlib import Path

from pocketmq.common.stacks import thread_places

ROOT = Path(__file__).parents[2]
LAYERS = ("broker", "cli", "client", "common", "namesrv", "pipeline", "remoting", "store", "testing")


def test_each_thread_is_there_with_its_innermost_call_first() -> None:
    """By its identifier; the caller's own thread, too."""
    ready, gate = threading.Event(), threading.Event()

    def waiting() -> None:
        ready.set()
        gate.wait(60)

    thread = threading.Thread(target=waiting)
    thread.start()
    try:
        assert ready.wait(60)
        places = thread_places()
    finally:
        gate.set()
        thread.join()
    own = [place.function for place in places[threading.get_ident()]]
    assert "test_each_thread_is_there_with_its_innermost_call_first" in own
    assert thread.ident is not None
    [found] = [place for place in places[thread.ident] if place.function == "waiting"]
    assert found.path == __file__
    assert found.line in (waiting.__code__.co_firstlineno + 1, waiting.__code__.co_firstlineno + 2)
    assert places[thread.ident][-1].function == "_bootstrap"


def test_threads_that_run_meanwhile_do_no_harm() -> None:
    """Their calls begin and end all the time; walking their frames from Python crashed the process."""
    stop = threading.Event()

    def calls(depth: int) -> int:
        return calls(depth - 1) + sum(map(int, "12")) if depth else len(sorted([3, 1], key=lambda each: -each))

    def work() -> None:
        while not stop.is_set():
            calls(20)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            places = thread_places()
            assert all(places[thread.ident or 0][-1].function == "_bootstrap" for thread in threads)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_nothing_else_reads_the_frames_of_other_threads() -> None:
    """No module of ours walks them."""
    files = [path for layer in LAYERS for path in (ROOT / layer).rglob("*.py")]
    assert len(files) > 100
    found = [path.name for path in files if "_current_frames()" in path.read_text()]
    assert found == []
