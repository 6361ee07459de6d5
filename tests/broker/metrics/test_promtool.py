"""The page is what Prometheus reads: its own tool finds nothing wrong with it."""

from tests.broker.conftest import Harness
from tests.broker.metrics.busy import make_busy
from tests.broker.metrics.test_exported_metrics import page_of
from tests.promtool import promtool

LINT_FAILED = 3
ROCKETMQS_UNITS = 'use base unit "seconds" instead of "milliseconds"'
"""RocketMQ's names have their unit; Prometheus' advice is another one."""


async def test_the_page_is_valid(harness: Harness) -> None:
    """With a sample of every metric. Its only advice is about RocketMQ's choice of units."""
    app = await harness.broker(notify_consumer_ids_changed_enable=False)
    await make_busy(harness, app)
    code, said = promtool("check", "metrics", text=page_of(app))
    advice = [line for line in said.splitlines() if line.strip()]
    others = [line for line in advice if not (line.startswith("rocketmq_") and line.endswith(ROCKETMQS_UNITS))]
    assert others == []
    assert code == (LINT_FAILED if advice else 0)


def test_a_broken_page_is_found() -> None:
    """The tool does look."""
    assert promtool("check", "metrics", text='# TYPE a gauge\na{b="c} 1\n')[0] == 1
