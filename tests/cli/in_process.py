"""The command ``pocketmq`` inside the test's process: the same entry, the same descriptors, no start of Python.

A process costs 0.7 s for its imports. Effects that only a process shows (signals, a closed descriptor, a crash,
imports) are tested with real ones, and each command once in ``test_smoke.py``.
"""

import os
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from pathlib import Path

from pocketmq.cli.main import main


def run_in_process(
    arguments: Sequence[str], stdin: bytes, environment: Mapping[str, str], directory: Path
) -> "subprocess.CompletedProcess[bytes]":
    """Run ``main`` with these arguments, variables and descriptors 0, 1 and 2; return the result of a process."""
    with ExitStack() as stack:
        out = stack.enter_context(tempfile.TemporaryFile())
        errors = stack.enter_context(tempfile.TemporaryFile())
        with _place(environment, directory), _standard_files(stdin, out.fileno(), errors.fileno()):
            code = copy_context().run(_call, arguments)  # how a command connects ends with it
        return subprocess.CompletedProcess(list(arguments), code, _whole(out.fileno()), _whole(errors.fileno()))


def _call(arguments: Sequence[str]) -> int:
    """Call ``main``; return the exit code the interpreter would end with."""
    before = sys.argv
    sys.argv = ["pocketmq", *arguments]
    try:
        main()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except Exception:
        traceback.print_exc()
        return 1
    finally:
        sys.argv = before
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


@contextmanager
def _place(environment: Mapping[str, str], directory: Path) -> Iterator[None]:
    """Give the process other variables and another directory until the block ends."""
    variables, at = dict(os.environ), Path.cwd()
    try:
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(directory)
        yield
    finally:
        os.chdir(at)
        os.environ.clear()
        os.environ.update(variables)


@contextmanager
def _standard_files(stdin: bytes, out: int, errors: int) -> Iterator[None]:
    """Put a pipe with ``stdin`` at descriptor 0, and these two files at 1 and 2; ``sys`` uses them."""
    names = ("stdin", "stdout", "stderr")
    files, saved = [getattr(sys, name) for name in names], [os.dup(number) for number in range(3)]
    for file in files[1:]:
        file.flush()
    read_end, write_end = os.pipe()
    writer = threading.Thread(target=_feed, args=(write_end, stdin))
    writer.start()
    try:
        for number, descriptor in enumerate((read_end, out, errors)):
            os.dup2(descriptor, number)
        os.close(read_end)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
        yield
    finally:
        for name, file in zip(names, files, strict=True):
            setattr(sys, name, file)
        for number, descriptor in enumerate(saved):
            os.dup2(descriptor, number)  # the pipe's last reader is gone: the writer ends
            os.close(descriptor)
        writer.join()


def _feed(descriptor: int, data: bytes) -> None:
    """Write all of it, unless the reader has closed the pipe."""
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
    except BrokenPipeError:
        pass
    finally:
        os.close(descriptor)


def _whole(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
