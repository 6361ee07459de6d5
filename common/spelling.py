"""RocketMQ's spelling of names and ours.

Lives here: ``camel_case``, ``snake_case``.
"""

import re


def camel_case(name: str) -> str:
    """Turn our spelling into RocketMQ's: ``listen_port`` → ``listenPort``."""
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def snake_case(name: str) -> str:
    """Turn RocketMQ's spelling into ours: ``flushDiskType`` → ``flush_disk_type``, and ``TimeOut`` → ``timeout``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.replace("-", "_")).lower().replace("time_out", "timeout")
