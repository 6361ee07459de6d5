"""Labels as Prometheus' text format writes them, made once for each set of values.

Lives here: ``label_text``, ``LabelTexts``, which keeps a bounded number of sets and gives all others one text.
"""

from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Final, Generic, TypeVar

from pocketmq.common.bounds import bounded
from pocketmq.common.exposition import ESCAPED

KeyT = TypeVar("KeyT", bound=Hashable)

OTHER: Final = "other"
"""The value that stands for all label values beyond the limit."""


def label_text(labels: Mapping[str, str]) -> str:
    """Return ``name="value",...`` in the order of the names, with quotes, backslashes and line ends escaped."""
    return ",".join(f'{name}="{labels[name].translate(ESCAPED)}"' for name in sorted(labels))


@bounded("label sets of metrics", limit="count_max", size="texts", entry_bytes=2_048, setting="metrics.series_max")
class LabelTexts(Generic[KeyT]):
    """Key → its label text, for at most ``count_max`` keys: the first ones. The rest has the text of ``other``, so that
    sums stay whole; a key that has one keeps it until ``keep_only`` drops it. One thread.
    """

    def __init__(self, count_max: int, text_of: Callable[[KeyT], str], other: str) -> None:
        self.count_max = count_max
        self._text_of = text_of
        self.other = other
        self.texts: dict[KeyT, str] = {}

    def of(self, key: KeyT) -> str:
        """Return the text of a key."""
        text = self.texts.get(key)
        if text is None:
            if len(self.texts) >= self.count_max:
                return self.other
            text = self.texts[key] = self._text_of(key)
        return text

    def keep_only(self, keys: Collection[KeyT]) -> None:
        """Drop the texts of all other keys."""
        for key in [key for key in self.texts if key not in keys]:
            del self.texts[key]
