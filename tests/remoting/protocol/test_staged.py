"""Staged transactions were once called named transactions; their names on the wire stay."""

import msgspec
import pytest

from pocketmq.remoting.protocol.hello import Announcement
from pocketmq.remoting.protocol.staged import StagedEndRequestHeader, StagedResponseHeader, StagedWriteRequestHeader
from pocketmq.remoting.string_map import wire_names


@pytest.mark.parametrize(
    ("header", "names"),
    [
        (
            StagedWriteRequestHeader,
            ["producerGroup", "name", "sequence", "attempt", "index", "sections", "timeoutMs", "wait"],
        ),
        (
            StagedEndRequestHeader,
            [
                *("producerGroup", "name", "sequence", "action", "attempts", "token", "lead", "participants"),
                *("keepHours", "brokers", "gone", "epoch"),
            ],
        ),
        (
            StagedResponseHeader,
            ["state", "delivered", "token", "lead", "participants", "epoch", "brokers", "lost"],
        ),
    ],
)
def test_headers_keep_their_names_on_the_wire(header: type, names: list[str]) -> None:
    assert list(wire_names(header).values()) == names


def test_the_announcement_keeps_its_name() -> None:
    """Clients and brokers of earlier versions use this name."""
    assert b'"named_transactions":1' in msgspec.json.encode(Announcement(staged_transactions=1))
    assert msgspec.json.decode(b'{"named_transactions":1}', type=Announcement).staged_transactions == 1
