"""The refusal of a request, in the words of RocketMQ's name server where it has some.

Lives here: ``RequestRefused``.
"""

from pocketmq.common.errors import PocketMQError


class RequestRefused(PocketMQError):
    """A request that RocketMQ's name server refuses; carries code and text."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.response_code = int(code)
