"""Many records, or many ids, in one piece of memory: made from columns without an object per row.

Lives here: ``PackedRecords``, ``PackedIds``.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

from pocketmq.common.message_id import UniqueIdGenerator

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class PackedRecords:
    """Plain records back to back in ``data``; ``sizes``: >u4, the bytes of each."""

    __slots__ = ("data", "sizes")

    def __init__(self, data: memoryview, sizes: "NDArray[Any]") -> None:
        self.data = data
        self.sizes = sizes

    def __len__(self) -> int:
        return len(self.sizes)

    def body(self) -> tuple[bytes, memoryview]:
        """Return the body of a native append, without a copy of the records: u32 sizes, then the records."""
        return self.sizes.tobytes(), self.data


class PackedIds(Sequence[bytes]):
    """Ids of one length back to back."""

    __slots__ = ("_count", "joined", "width")

    def __init__(self, joined: bytes, count: int) -> None:
        self.joined = joined
        self.width = len(joined) // count if count else 0
        self._count = count

    @classmethod
    def new(cls, ids: UniqueIdGenerator, count: int) -> "PackedIds":
        """Return ``count`` new ids."""
        return cls(ids.next_rows(count).tobytes(), count)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(self._count))]
        at = index + self._count if index < 0 else index
        if not 0 <= at < self._count:
            raise IndexError(f"id {index} of {self._count}")
        return self.joined[at * self.width : (at + 1) * self.width]

    def __iter__(self) -> Iterator[bytes]:
        joined, width = self.joined, self.width
        return (joined[at : at + width] for at in range(0, len(joined), width or 1))

    def rows(self) -> "NDArray[np.uint8]":
        """Return the ids as the rows of a matrix."""
        import numpy as np

        return np.frombuffer(self.joined, np.uint8).reshape(self._count, -1)


def packed_ids(ids: Sequence[bytes]) -> PackedIds:
    """Return ``ids``, which have one length, back to back."""
    return ids if isinstance(ids, PackedIds) else PackedIds(b"".join(ids), len(ids))
