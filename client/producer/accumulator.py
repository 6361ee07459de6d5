"""Natural batching: sends of one turn of the event loop to one broker leave in one frame.

Lives here: ``Accumulator``, which fills and closes sections and frames. Pure: it neither sends nor waits; its owner
calls ``flush`` at the end of the turn.

The hot path is one lookup and five appends per message; everything else is done once per section or frame.
"""

from asyncio import Future
from typing import TYPE_CHECKING, Any

from pocketmq.client.sender.section import FRAME_BYTES_TARGET, Frame, Section, unbuilt_bytes
from pocketmq.common.message import Message

if TYPE_CHECKING:
    from pocketmq.client.message.receipts import Receipt


class Accumulator:
    """The open frames and sections of one producer.

    ``open`` finds an open section by its key (the topic itself on the hot path). A section is added by ``begin``, gets
    messages by ``add`` or by its owner, and leaves with its frame: by ``flush`` at the end of the turn, or when
    ``full``.
    """

    __slots__ = ("frame_bytes_max", "frames", "open")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_TARGET) -> None:
        self.frame_bytes_max = frame_bytes_max
        self.open: dict[Any, Section] = {}
        self.frames: dict[tuple[str, bool, bool, bool], Frame] = {}

    def __bool__(self) -> bool:
        return bool(self.frames)

    def begin(self, section: Section) -> bool:
        """Open ``section`` in the frame of its broker; return True if no frame was open before: a flush is due."""
        first = not self.frames
        name = (section.queue.broker_name, section.wait, section.oneway, section.half)
        frame = self.frames.get(name)
        if frame is None:
            frame = self.frames[name] = Frame(*name)
        frame.sections.append(section)
        section.frame = frame
        if section.key is not None:
            assert section.key not in self.open
            self.open[section.key] = section
        return first

    def add(self, section: Section, message: Message, uniq_key: bytes, future: "Future[Receipt] | None") -> bool:
        """Put a message into an open section; return True if its frame is full now. Raises ``MessageIllegal``."""
        if section.build is not None:
            record = section.build(message, section.queue_id, uniq_key, section.born_ms)
            section.records.append(record)
            size = len(record)
        else:
            size = unbuilt_bytes(message)
        section.messages.append(message)
        section.uniq_keys.append(uniq_key)
        if future is not None:
            section.futures.append(future)
        frame = section.frame
        assert frame is not None
        frame.size_bytes += size
        return frame.size_bytes >= self.frame_bytes_max

    def take(self, frame: Frame) -> Frame:
        """Close ``frame``: no section is added to it from now on."""
        del self.frames[frame.broker_name, frame.wait, frame.oneway, frame.half]
        for section in frame.sections:
            if section.key is not None:
                del self.open[section.key]
            section.frame = None
            section.measure()
        frame.sections = [section for section in frame.sections if section.count]
        return frame

    def flush(self) -> list[Frame]:
        """Close and return every frame that is not empty."""
        frames = [self.take(frame) for frame in list(self.frames.values())]
        return [frame for frame in frames if frame.sections]
