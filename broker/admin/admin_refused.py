"""The error of a request of administrators that cannot be served.

Lives here: ``AdminRefused``.
"""

from pocketmq.common.errors import Cause, PocketMQError


class AdminRefused(PocketMQError):
    """A request of an administrator that this broker refuses; nothing has changed."""

    default_cause = Cause.BAD_REQUEST
