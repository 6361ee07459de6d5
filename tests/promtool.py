"""Prometheus' own tool, which checks pages and rules; tests that need it are skipped where it is missing."""

import shutil
import subprocess

import pytest


def promtool(*arguments: str, text: str = "") -> tuple[int, str]:
    """Run it; return its exit code and all that it wrote. Skip the test where it is not installed."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("needs promtool: apt-get install --no-install-recommends prometheus")
    done = subprocess.run([program, *arguments], input=text, capture_output=True, text=True, timeout=100, check=False)
    return done.returncode, done.stdout + done.stderr
