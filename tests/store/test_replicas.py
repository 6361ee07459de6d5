"""The two verdicts on a send."""

import itertools

import pytest

from pocketmq.store.append_result import PutStatus
from pocketmq.store.replicas import BothVerdicts

OK = PutStatus.PUT_OK
DISK = PutStatus.FLUSH_DISK_TIMEOUT
LOST = PutStatus.SERVICE_NOT_AVAILABLE
LATE = PutStatus.FLUSH_SLAVE_TIMEOUT
NONE = PutStatus.SLAVE_NOT_AVAILABLE

VERDICTS = {
    (OK, OK): OK,
    (OK, LATE): LATE,
    (OK, NONE): NONE,
    (DISK, OK): DISK,
    (DISK, LATE): LATE,
    (DISK, NONE): NONE,
    (LOST, OK): LOST,
    (LOST, LATE): LOST,
    (OK, LOST): LOST,
    (DISK, LOST): LOST,
}


@pytest.mark.parametrize(("case", "replicas_first"), list(itertools.product(VERDICTS, (False, True))))
def test_a_bad_status_of_the_slaves_overwrites_one_of_the_disk(
    case: tuple[PutStatus, PutStatus], replicas_first: bool
) -> None:
    """Whichever comes first, the answer follows the second, once; an unknown result stays unknown."""
    told: list[PutStatus] = []
    both = BothVerdicts(told.append)
    steps = [(both.flushed, case[0]), (both.replicated, case[1])]
    for step, status in reversed(steps) if replicas_first else steps:
        assert not told
        step(status)
    assert told == [VERDICTS[case]]
