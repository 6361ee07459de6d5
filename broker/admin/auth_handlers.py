"""Users and policies of a broker: the requests of ``pocketmq.auth`` as handlers of the default pair.

Lives here: ``auth_handlers``.
"""

from collections.abc import Mapping
from functools import partial

from pocketmq.auth.auth_admin import AuthAdmin
from pocketmq.auth.auth_admin import Handler as AuthHandler
from pocketmq.auth.server_auth import ServerAuth
from pocketmq.broker.admin.admin_refused import AdminRefused
from pocketmq.broker.request.default_processor import Handler
from pocketmq.broker.request.request_task import Buffers, Task, encode_answer
from pocketmq.common.errors import Cause
from pocketmq.common.events import EventLog
from pocketmq.remoting.protocol import PROTOCOL
from pocketmq.remoting.protocol.access import UPDATE_CLUSTER


def auth_handlers(auth: ServerAuth, log: EventLog, *, is_slave: bool) -> Mapping[int, Handler]:
    """Return code → handler. A slave changes nothing: it takes users and policies from its master."""
    return {
        code: partial(_refuse_change if is_slave and _is_change(code) else _serve, handler)
        for code, handler in AuthAdmin(auth, log).handlers.items()
    }


def _is_change(code: int) -> bool:
    spec = PROTOCOL[code]
    return spec.access == UPDATE_CLUSTER and spec.request is not None


def _serve(handler: AuthHandler, task: Task) -> Buffers:
    return encode_answer(task.request, body=handler(task.request, task.connection.remote))


def _refuse_change(handler: AuthHandler, task: Task) -> Buffers:
    raise AdminRefused("nothing changed", why="this broker is a slave", hint="ask the master", cause=Cause.NOT_MASTER)
