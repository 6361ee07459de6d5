"""``topic list`` beside names that no request can have: another name server may have taken them from a broker."""

from typing import Any

import pytest

from pocketmq.client.admin.admin import Admin
from pocketmq.testing.broker import PocketBroker


def test_an_illegal_topic_keeps_no_other_out(run_command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named on standard error, escaped; the others are listed, and the exit code is 0."""
    topics = Admin.topics

    async def with_illegal(self: Admin) -> list[str]:
        return ["\x1b[2Jillegal", *await topics(self)]

    with PocketBroker() as broker:
        assert run_command("topic", "create", "Orders", "--namesrv", broker.namesrv).returncode == 0
        monkeypatch.setattr(Admin, "topics", with_illegal)
        done = run_command("topic", "list", "--namesrv", broker.namesrv)
    assert done.returncode == 0, done.stderr
    assert b"Orders" in done.stdout
    assert b"\x1b" not in done.stdout + done.stderr
    assert b"left out" in done.stderr
