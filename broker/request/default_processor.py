"""The default pair: every request code that has no executor of its own.

Lives here: ``AdminProcessor``, which finds the handler of a code, and the answer to unknown codes.
"""

from collections.abc import Callable, Mapping

from pocketmq.broker.request.executor import OneByOne
from pocketmq.broker.request.request_task import Buffers, Drain, Refusal, Task
from pocketmq.common.errors import Cause
from pocketmq.remoting.codes import ResponseCode

Handler = Callable[[Task], Buffers]


def not_supported(code: int) -> Refusal:
    """Return RocketMQ's refusal of a code."""
    text = f" request type {code} not supported"
    return Refusal(int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED), text, Cause.BAD_REQUEST)


class AdminProcessor(OneByOne):
    """Serves the default pair (RocketMQ AdminBrokerProcessor)."""

    def __init__(
        self, handlers: Mapping[int, Handler], later: Mapping[int, Callable[[Task], None]] | None = None
    ) -> None:
        """``later``: handlers that take over a task and answer it later, when another party has answered them."""
        self._handlers = {int(code): handler for code, handler in handlers.items()}
        self._later = {int(code): handler for code, handler in (later or {}).items()}

    def serves(self, code: int) -> bool:
        """Return whether ``code`` has a handler."""
        return code in self._handlers or code in self._later

    def serve(self, task: Task, drain: Drain) -> None:
        """Answer one request."""
        handler = self._handlers.get(task.request.code)
        later = self._later.get(task.request.code)
        if later is not None:
            later(task)  # one that raises has not taken it over
            drain.release(task)
        elif handler is None:
            drain.refuse(task, not_supported(task.request.code))
        else:
            drain.answer(task, handler(task))
