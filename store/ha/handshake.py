"""Whether a slave may follow, and from where: the master's answer to HELLO.

Lives here: ``MasterView`` and the decisions, without I/O.
"""

from dataclasses import dataclass, field

from pocketmq.store.ha.epochs import BadEpochs, Epoch, EpochTable, common_end
from pocketmq.store.ha.wire import CRC_NAME, Hello, RefusalCode, Refused, Welcome

ACK_POLICIES = ("WRITTEN", "FLUSHED")


@dataclass(slots=True, frozen=True, kw_only=True)
class MasterView:
    """The master at the moment of a HELLO. ``other_slaves``: node ids that are connected, this one left out."""

    cluster: str
    broker_name: str
    node_id: str
    role: str
    segment_bytes: int
    epochs: EpochTable
    min_offset: int
    end_offset: int
    confirm_offset: int
    in_sync_replicas: int
    total_replicas: int
    slaves_max: int
    address: str = ""
    other_slaves: frozenset[str] = field(default_factory=frozenset)


@dataclass(slots=True, frozen=True)
class HigherEpoch:
    """A newer epoch, learned from a slave's HELLO."""

    epoch: int
    owner: str


def check_group(hello: Hello, view: MasterView) -> Refused | None:
    """Refuse a node of another group, or one whose log cannot match this one file by file."""
    for what, theirs, ours, code in (
        ("cluster", hello.cluster, view.cluster, RefusalCode.OTHER_CLUSTER),
        ("broker name", hello.broker_name, view.broker_name, RefusalCode.OTHER_BROKER_NAME),
        ("segment size", hello.segment_bytes, view.segment_bytes, RefusalCode.OTHER_SEGMENT_SIZE),
        ("checksum", hello.crc, CRC_NAME, RefusalCode.OTHER_CHECKSUM),
    ):
        if theirs != ours:
            return _refused(code, f"the slave's {what} is {theirs}, the master's {ours}: set both to the same value")
    if hello.node_id == view.node_id or not hello.node_id:
        return _refused(
            RefusalCode.SAME_NODE,
            f"the slave has the master's node id {view.node_id}: its store is a copy of the master's; start it with "
            "an empty store",
        )
    if hello.ack_policy not in ACK_POLICIES:
        return _refused(RefusalCode.BAD_HELLO, f"acknowledgement policy {hello.ack_policy!r} is unknown")
    return None


def answer_hello(hello: Hello, view: MasterView) -> tuple[Welcome | Refused, HigherEpoch | None]:
    """Return the answer to a slave, and an epoch above the master's own if a slave of the group reports one.

    A slave that reports such an epoch is refused, and the master must fence itself.
    """
    refused = check_group(hello, view)
    if refused is not None:
        return refused, None
    try:
        table = EpochTable(Epoch(*row) for row in hello.epochs)
    except BadEpochs as error:
        return _refused(RefusalCode.BAD_HELLO, f"the slave's epochs: {error.why}"), None
    is_empty = hello.end_offset == hello.min_offset
    common = 0 if is_empty else common_end(view.epochs, view.end_offset, table, hello.end_offset)
    if common is None:
        return _refused(
            RefusalCode.DIFFERENT_LOG,
            f"the slave's log [{hello.min_offset}, {hello.end_offset}) shares no epoch with the master's: it is the "
            "log of another broker, or one of the two was replaced; if this master has the right messages, start the "
            "slave with an empty store",
        ), None
    refused, higher = _judge_epochs(hello, view, table)
    if refused is not None:
        return refused, higher
    last = view.epochs.last
    assert last is not None, "a master has opened its epoch"
    if not is_empty and hello.end_offset > view.end_offset and last in table.cut(hello.end_offset).entries:
        return _refused(
            RefusalCode.LARGER_OFFSET,
            f"the slave's log ends at {hello.end_offset}, beyond the master's {view.end_offset} in the master's own "
            f"epoch {last.number}: no slave can have that; start it with an empty store",
        ), None
    if len(view.other_slaves) >= view.slaves_max:
        return _refused(
            RefusalCode.TOO_MANY_SLAVES,
            f"{len(view.other_slaves)} slaves follow, and at most {view.slaves_max} may: raise total_replicas on "
            "every node of the group (promotion depends on it)",
        ), None
    restart = False
    cut_to: int | None = None
    if is_empty:
        start = view.min_offset
        restart = hello.end_offset != start
    elif common < view.min_offset:
        start, restart = view.min_offset, True
    else:
        start = common
        cut_to = common if common < hello.end_offset else None
    return Welcome(
        epochs=view.epochs.to_rows(),
        epoch=last.number,
        owner=last.owner,
        role=view.role,
        min_offset=view.min_offset,
        end_offset=view.end_offset,
        start_offset=start,
        common_offset=common,
        cut_to=cut_to,
        restart=restart,
        confirm_offset=min(view.confirm_offset, view.end_offset),
        in_sync_replicas=view.in_sync_replicas,
        total_replicas=view.total_replicas,
        segment_bytes=view.segment_bytes,
        address=view.address,
    ), None


def _judge_epochs(hello: Hello, view: MasterView, table: EpochTable) -> tuple[Refused | None, HigherEpoch | None]:
    """Refuse a slave that has promised, or follows, an epoch at or above ours that is not ours."""
    last = view.epochs.last
    assert last is not None
    known = [hello.promised]
    if table.last is not None:
        known.append((table.last.number, table.last.owner))
    number, owner = max(known, key=lambda item: item[0])
    if number > last.number:
        return _refused(
            RefusalCode.HIGHER_EPOCH,
            f"the slave knows epoch {number} of {owner}, this master has {last.number}: it was replaced; demote it "
            "with: pocketmq ha demote",
        ), HigherEpoch(number, owner)
    if any(item[0] == last.number and item[1] != last.owner for item in known):
        return _refused(
            RefusalCode.PROMISED_TO_OTHER,
            f"the slave has promised epoch {last.number} to another node than {last.owner}: two claim it; run pocketmq "
            "ha status, then promote one",
        ), None
    return None, None


def _refused(code: str, text: str) -> Refused:
    return Refused(code=code, text=text)
