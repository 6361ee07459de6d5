"""Checks that a broker asks for: how many wait."""

from types import SimpleNamespace
from typing import Any

import pytest

from pocketmq.client.transaction import transaction_checks
from pocketmq.client.transaction.transaction_checks import TransactionChecks
from pocketmq.common.clock import ManualClock
from pocketmq.common.logs import CapturedLog
from pocketmq.common.record import encode_properties
from pocketmq.common.record_codec import encode_record
from pocketmq.remoting.protocol.transaction import CheckTransactionStateRequestHeader
from tests.store.log_fakes import HOST


def record(body: bytes) -> bytes:
    properties = encode_properties({"UNIQ_KEY": "7" * 32, "PGROUP": "g"})
    return encode_record(
        "T",
        body,
        queue_id=0,
        properties=properties,
        born_host=HOST,
        store_host=HOST,
        born_timestamp=1,
        store_timestamp=2,
    )


@pytest.mark.parametrize("limit", ["count", "bytes"])
def test_checks_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """A broker that asks without end is not believed: what is too much is dropped, counted and logged a few times."""
    body = record(b"x" * 1000)
    if limit == "count":
        monkeypatch.setattr(transaction_checks, "CHECKS_WAITING_MAX", 5)
    else:
        monkeypatch.setattr(transaction_checks, "CHECK_BYTES_MAX", 5 * len(body))
    log = CapturedLog()
    connection = SimpleNamespace(address="127.0.0.1:1", broker_name="b")
    instance: Any = SimpleNamespace(
        log=log, clock=ManualClock(), supervisor=None, connection_of=lambda channel: connection
    )
    ends: Any = None
    checks = TransactionChecks(instance, "g", lambda message: None, ends, concurrency=0, timeout_ms=1000)
    channel: Any = None
    for number in range(40):
        header = CheckTransactionStateRequestHeader(tran_state_table_offset=number, commit_log_offset=number)
        request: Any = SimpleNamespace(header=header, body=body)
        checks.on_request(channel, request)
    assert (len(checks._waiting), len(checks._places), checks.dropped) == (5, 5, 35)
    assert len([each for each in log.events if each["event"] == "transaction_checks_dropped"]) == 6
