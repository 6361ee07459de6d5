"""Spark with a broker that wants a proof; the secret is in no output, plan, error, or checkpoint."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pocketmq.testing import PocketBroker
from tests.remoting.protected_servers import ALICE, ProofOfAlice

pytest.importorskip("pyspark")
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

WRONG = "a-wrong-secret-of-alice"


@pytest.fixture(scope="module")
def guarded() -> Iterator[PocketBroker]:
    """A broker that knows alice; its name server lets everyone in."""
    with PocketBroker() as running:
        assert running.app._server is not None
        running.app._server.guard = ProofOfAlice()
        yield running


class Shown:
    """What a user may see of Spark's work, at the log level at which Spark shows its plans."""

    def __init__(self, spark: "SparkSession", capfd: pytest.CaptureFixture[str]) -> None:
        self.texts: list[str] = []
        self._spark, self._capfd = spark, capfd

    def __enter__(self) -> "Shown":
        self._spark.sparkContext.setLogLevel("INFO")
        return self

    def __exit__(self, *_: object) -> None:
        self._spark.sparkContext.setLogLevel("ERROR")
        self.texts += self._capfd.readouterr()

    def check(self) -> None:
        """There is a plan, and no secret."""
        assert [text for text in self.texts if "== Physical Plan ==" in text]
        for secret in (ALICE.secret_key, WRONG):
            assert not [text for text in self.texts if secret in text]


def options_of(broker: PocketBroker, secret_key: str = ALICE.secret_key) -> dict[str, Any]:
    return {"namesrv": broker.namesrv, "accessKey": "alice", "secretKey": secret_key}


def write(spark: "SparkSession", topic: str, options: dict[str, Any]) -> None:
    rows = spark.range(20).selectExpr("cast(id as string) as body")
    rows.write.format("pocketmq").mode("append").options(**options, topic=topic).save()


def test_batches_with_a_secret_show_it_nowhere(
    spark: "SparkSession", guarded: PocketBroker, capfd: pytest.CaptureFixture[str]
) -> None:
    """Logs, plans, errors of a wrong key."""
    options, wrong = options_of(guarded), options_of(guarded, WRONG)
    with Shown(spark, capfd) as shown:
        write(spark, "Batch", options)
        frame = spark.read.format("pocketmq").options(**options, subscribe="Batch").load()
        frame.explain("extended")
        frame.explain("formatted")
        shown.texts += [repr(frame), str(frame._jdf.queryExecution())]
        assert frame.count() == 20
        for work in (
            lambda: write(spark, "Batch", wrong),
            lambda: spark.read.format("pocketmq").options(**wrong, subscribe="Batch").load().count(),
        ):
            with pytest.raises(Exception, match="refused the credentials of alice") as caught:
                work()
            shown.texts.append(str(caught.value))
    shown.check()


@pytest.mark.soak
def test_a_stream_with_a_secret_shows_it_nowhere(
    spark: "SparkSession", guarded: PocketBroker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Logs, plans, progress, checkpoint."""
    options = options_of(guarded)
    with Shown(spark, capfd) as shown:
        write(spark, "From", options)
        stream = spark.readStream.format("pocketmq")
        stream = stream.options(**options, subscribe="From", startingOffsets="earliest")
        writer = stream.load().select("body").writeStream.format("pocketmq").options(**options, topic="To")
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        query.awaitTermination()
        query.explain(True)
        progress = query.lastProgress
        assert progress is not None
        assert progress["numInputRows"] == 20
        shown.texts += [str(progress), str(query.status)]
    files = [file.read_bytes().decode("latin-1") for file in tmp_path.rglob("*") if file.is_file()]
    assert files
    shown.texts += files
    shown.check()
