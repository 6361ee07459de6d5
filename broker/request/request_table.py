"""Which processor and executor serve a request code.

Lives here: ``RequestTable``.
"""

from collections.abc import Callable, Iterable

from pocketmq.broker.request.executor import DrainExecutor


class RequestTable:
    """Request code → pair. An executor carries its processor, so a pair is one object."""

    def __init__(self, default: DrainExecutor, serves: Callable[[int], bool] = lambda code: True) -> None:
        """``default`` takes every code without a pair of its own, even unknown ones; ``serves``: the codes it knows."""
        self.default = default
        self._default_serves = serves
        self._pairs: dict[int, DrainExecutor] = {}
        self._executors: dict[str, DrainExecutor] = {}

    def register(self, codes: Iterable[int], pair: DrainExecutor) -> None:
        """Let ``pair`` serve ``codes``, each of which has no pair yet."""
        for code in codes:
            assert int(code) not in self._pairs
            self._pairs[int(code)] = pair
        self._executors[pair.name] = pair

    def pair_for(self, code: int) -> DrainExecutor:
        """Return the pair that serves ``code``."""
        return self._pairs.get(code, self.default)

    def serves(self, code: int) -> bool:
        """Return whether ``code`` is supported."""
        return code in self._pairs or self._default_serves(code)

    def executors(self) -> list[DrainExecutor]:
        """Return every executor once, in the order of registration, with the default one last."""
        return [*self._executors.values(), self.default]

    def executor(self, name: str) -> DrainExecutor:
        """Return the executor called ``name``; raises ``KeyError``."""
        return self.default if name == self.default.name else self._executors[name]
