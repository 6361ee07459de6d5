"""The broker of a name to read from: the suggested one, the master, or a slave while the master is unreachable.

Lives here: ``ReadConnections``: the order of a name's brokers, and the ones avoided for a while.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from pocketmq.client.connection.instance import BrokerConnection, ClientInstance
from pocketmq.client.connection.route import MASTER_ID
from pocketmq.client.errors import BrokerAnswerError
from pocketmq.common.errors import PocketMQError
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import ConnectFailed, ConnectionLost, RequestTimeout

AVOID_MS_MIN: Final = 10_000
AVOID_MS_MAX: Final = 120_000
"""A broker that did not answer is tried last for so long, twice as long each time."""

_T = TypeVar("_T")


class ReadConnections:
    """Reads of one consumer. Loop thread.

    Without slaves only the master is tried. Where slaves are known, one is tried as soon as the broker before it cannot
    be reached, does not answer in time, or answers that it does not serve.
    """

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance
        self._avoided: dict[str, tuple[int, int]] = {}  # address -> (until, monotonic ns; ms of that wait)

    async def ask(
        self, broker_name: str, request: Callable[[int, BrokerConnection], Awaitable[_T]], *, broker_id: int = MASTER_ID
    ) -> _T:
        """Return what ``request(broker id, connection)`` returns for the first broker that answers, ``broker_id``
        first.

        Raises the last error of the connection, or at once any other error.
        """
        instance = self._instance
        instance.check_process()
        readers = self._order(instance.broker(broker_name).readers(broker_id))
        failed: PocketMQError | None = None
        for number, address in readers:
            try:
                connection = await instance.connection_to(
                    address, broker_name, timeout_ms=instance.options.api_timeout_ms
                )
                result = await request(number, connection)
            except (ConnectFailed, ConnectionLost, RequestTimeout) as error:
                failed = error
            except BrokerAnswerError as error:
                if error.answer_code != ResponseCode.SERVICE_NOT_AVAILABLE:
                    raise
                failed = error
            else:
                self._avoided.pop(address, None)
                return result
            instance.invalidate_routes_of(broker_name)
            if len(readers) > 1:
                self._avoid(address)
        if failed is not None:
            raise failed
        await instance.connection(broker_name, timeout_ms=instance.options.api_timeout_ms)  # raises: no address at all
        raise AssertionError("a broker without an address has a connection")

    def _order(self, readers: list[tuple[int, str]]) -> list[tuple[int, str]]:
        if not self._avoided or len(readers) == 1:
            return readers
        now_ns = self._instance.clock.monotonic_ns()
        return sorted(readers, key=lambda reader: self._avoided.get(reader[1], (0, 0))[0] > now_ns)

    def _avoid(self, address: str) -> None:
        _, waited_ms = self._avoided.get(address, (0, AVOID_MS_MIN // 2))
        wait_ms = min(2 * waited_ms, AVOID_MS_MAX)
        self._avoided[address] = (self._instance.clock.monotonic_ns() + wait_ms * 1_000_000, wait_ms)
