"""The numbers of epochs: what a promotion, a new set of slaves and a restart of a master may open.

Lives here: the steps and the arithmetic on them, for every program that opens, judges or requests an epoch. An epoch is
a positive int below ``EPOCH_PROMISED_MAX``; 0 stands for none.
"""

from collections.abc import Iterator
from typing import Final

PROMOTION_STEP: Final = 1_000_000
"""A promotion opens the next multiple of it; a master that starts again counts on by one. So an old master cannot pass
the one that replaced it by starting often enough."""
MEMBERS_STEP: Final = 100
"""Within a promotion's numbers: a master that begins to count another slave opens the next multiple of it; one that
only starts again counts on by one. So the numbers of two epochs show whether the same nodes may confirm in both. After
that many starts without a new slave they look different, and a promotion asks for more than it must."""
PROMOTIONS_AHEAD_MAX: Final = 2
"""How many promotions a forced claim or a promise may be beyond the newest known epoch: one for the promotion, one for
a master that leads again after it failed. Otherwise one number near the end of the range would leave none."""
EPOCH_UNKNOWN_MAX: Final = 1_000_000 * PROMOTION_STEP
"""The highest epoch that a name server takes without knowing the ones before it: it may be new, have lost its directory
or have been away for many promotions. Above it, room is left for billions of them."""
EPOCH_PROMISED_MAX: Final = 1 << 52
"""No node promises a higher epoch; no promotion of ours reaches it."""


def next_members(highest_known: int) -> int:
    """Return the epoch that a master opens when the slaves that it counts change."""
    return (highest_known // MEMBERS_STEP + 1) * MEMBERS_STEP


def members_of(epoch: int) -> int:
    """Return which set of counted slaves an epoch has: of two sets of one broker name the newer one is higher.

    -1 for no epoch: a node without one was in no set.
    """
    return epoch // MEMBERS_STEP if epoch else -1


def next_promotion(highest_known: int) -> int:
    """Return the epoch that a promotion opens when ``highest_known`` is the highest one known."""
    return (highest_known // PROMOTION_STEP + 1) * PROMOTION_STEP


def highest_allowed(highest_known: int) -> int:
    """Return the highest epoch that may be forced, or asked to be promised, where ``highest_known`` is known."""
    return (highest_known // PROMOTION_STEP + PROMOTIONS_AHEAD_MAX + 1) * PROMOTION_STEP - 1


def steps_to(epoch: int, highest_known: int) -> Iterator[int]:
    """Yield the epochs to ask for one after the other where ``highest_known`` is known, ``epoch`` itself last: a node
    that was away for several promotions is led over them."""
    while epoch > highest_allowed(highest_known):
        highest_known = (highest_known // PROMOTION_STEP + PROMOTIONS_AHEAD_MAX) * PROMOTION_STEP
        yield highest_known
    yield epoch
