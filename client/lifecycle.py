"""The common base of the SDK's faces: ``async with`` starts and stops them.

Lives here: ``Lifecycle``.
"""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Lifecycle(ABC):
    """Started by ``async with``, stopped at its end, also after an exception."""

    @abstractmethod
    async def start(self) -> None:
        """Start; starting twice does nothing."""

    @abstractmethod
    async def stop(self) -> None:
        """Finish running work and release everything; stopping twice does nothing."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()
