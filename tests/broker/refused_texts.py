"""A refusal whose words come from the table, as a client sees it."""

from pocketmq.broker.request.request_task import Refusal
from pocketmq.common.errors import Stored
from pocketmq.common.refusals import find


def said(refusal: object) -> tuple[int, str]:
    """Return code and text of a refusal, after ``find`` has led from the text to its cause."""
    assert isinstance(refusal, Refusal)
    assert refusal.stored is Stored.NO
    matches = [match for match in find(refusal.remark) if match.row.cause is refusal.cause]
    assert [match.text.code for match in matches if match.text is not None] == [refusal.code], refusal
    return refusal.code, refusal.remark
