"""One Spark session and one broker for all tests of the pipeline.

Where Java is missing these tests are skipped (in CI: fail) and the summary says why; ``make test`` tries to install it
first (tests/java.py).
"""

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from pocketmq.pipeline.java import JavaMissing, use_java
from pocketmq.testing import PocketBroker
from tests import profiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
SHORT_LIFE: Final = {
    "spark.master": "local[1]",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m",
}
"""Settings that make small queries cheap: Spark generates no Java for them and plans each once, and the JVM does not
optimise code that runs a few times. They save two thirds of the processor time. The soak runs with users' settings.
"""

skipped_for_java: list[str] = []
"""Why tests had no Spark, for the summary."""


@pytest.fixture(scope="session")
def java() -> Path:
    """The home of a Java for Spark, in JAVA_HOME from now on. Without one: a failure in CI, else a skip that the
    summary shows in red, whatever pytest's options are.
    """
    try:
        return use_java()
    except JavaMissing as missing:
        skipped_for_java.append(str(missing))
        if os.environ.get("CI") and "java" not in os.environ.get("POCKETMQ_MAY_LACK", "").split():
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say that Spark was not tested."""
    if skipped_for_java:
        terminalreporter.section("Spark was NOT tested", red=True, bold=True)
        terminalreporter.write_line(skipped_for_java[0])


def spark_settings(profile: str) -> dict[str, str]:
    """Return the settings of the session in a profile."""
    return SETTINGS | SHORT_LIFE if profile == "fast" else SETTINGS


@pytest.fixture(scope="session")
def spark(java: Path) -> "Iterator[SparkSession]":
    """A local session with both formats registered."""
    from pyspark.sql import SparkSession

    from pocketmq.pipeline import register

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        builder = SparkSession.builder.appName("pocketmq-tests")
        for name, value in spark_settings(profiles.profile()).items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        register(session)
        yield session
        session.stop()


@pytest.fixture(scope="module")
def broker() -> Iterator[PocketBroker]:
    """Start one broker for the module."""
    with PocketBroker() as running:
        yield running
