"""What every face of the SDK has in common: ``async with`` starts it and stops it.

Lives here: ``Lifecycle``.
"""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Lifecycle(ABC):
    """Started by ``async with``, stopped at its end, whatever happened inside."""

    @abstractmethod
    async def start(self) -> None:
        """Make ready; starting twice does nothing."""

    @abstractmethod
    async def stop(self) -> None:
        """Finish what is under way and give everything back; stopping twice does nothing."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()
