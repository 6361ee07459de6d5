"""A fact that a text log says, before equal ones are merged, and what its rules share.

Lives here: ``Said``, ``Rule``, numbers, names and texts in bytes of a log.
"""

import codecs
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from pocketmq.pipeline.jobs.flow_control.facts import is_name
from pocketmq.pipeline.jobs.flow_control.rocketmq.lines import Entry

NUMBER: Final = re.compile(rb"(\d{1,15})")
BROKER: Final = re.compile(rb"brokerName=([^,\]\s]{1,127})")
_MS: Final = re.compile(rb"(?:\(ms\)\s?=?|costs?|elapsed)\s*(\d{1,12})")


@dataclass(slots=True)
class Said:
    """A fact before it is merged; fields as in ``Fact``."""

    kind: str
    name: str
    target: str = ""
    cause: str = ""
    tag: str = ""
    code: int = 0
    count: int = 1
    again: int = 0
    ended: int = 0
    for_ms: int = 0
    value: float = 0.0
    p50: float = 0.0
    p99: float = 0.0


Rule = Callable[[Entry, bytes], Iterator[Said]]
"""Yields what an entry says; its second argument is the text of the entry."""


def ms_in(text: bytes) -> float:
    """Return the ms that a text names, 0 without."""
    match = _MS.search(text)
    return float(match[1]) if match else 0.0


def name_in(text: bytes) -> str:
    """Return a broker's name, empty if it cannot be one."""
    name = text.decode("utf-8", "replace")
    return name if is_name(name) else ""


def decoded(text: bytes) -> str:
    """Return text in UTF-8, or in GB 18030 (GBK with it) where it is no UTF-8."""
    try:
        return codecs.utf_8_decode(text, "strict", False)[0]
    except UnicodeDecodeError:
        pass
    try:
        return codecs.getincrementaldecoder("gb18030")("strict").decode(text)
    except UnicodeDecodeError:
        return text.decode("utf-8", "replace")
