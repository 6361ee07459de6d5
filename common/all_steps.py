"""An end in many steps, none of which may keep the others from their turn.

Lives here: ``AllSteps``.
"""

from collections.abc import Callable

from pocketmq.common.errors import PocketMQError


class AllSteps:
    """Takes steps one after the other, whatever the ones before have raised. One thread.

    ``on_error(step, error)`` is told of each failure when it happens; ``raise_first`` tells the caller at the end.
    """

    def __init__(self, on_error: Callable[[str, Exception], object]) -> None:
        self._on_error = on_error
        self._failed: list[tuple[str, Exception]] = []

    @property
    def have_failed(self) -> bool:
        """Whether a step so far has raised."""
        return bool(self._failed)

    def take(self, name: str, step: Callable[[], object]) -> bool:
        """Take one step; tell whether it went well. It may raise what it likes: also a bug must not cost the steps
        behind it.
        """
        try:
            step()
        except Exception as error:
            self._failed.append((name, error))
            self._on_error(name, error)
            return False
        return True

    def raise_first(self) -> None:
        """Raise the first error, with a note for each later one; a foreign error becomes a ``PocketMQError``."""
        if not self._failed:
            return
        (name, first), *others = self._failed
        raised = first
        if not isinstance(first, PocketMQError):
            raised = PocketMQError("not ended cleanly", why=f"{name}: {first!r}", hint="see the log")
        for name, error in others:
            raised.add_note(f"{name} failed as well: {error}")
        raise raised from (None if raised is first else first)
