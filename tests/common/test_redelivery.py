"""messageDelayLevel, and the fields of a delayed message."""

import pytest

from pocketmq.common.errors import ConfigError, MessageIllegal
from pocketmq.common.message import Message
from pocketmq.common.redelivery import DelayLevels
from pocketmq.store.config import StoreConfig


def test_the_default_levels_are_rocketmqs() -> None:
    """There are eighteen levels, from a second to two hours."""
    levels = DelayLevels()
    assert (len(levels), levels.delay_ms(1), levels.delay_ms(5), levels.delay_ms(18)) == (18, 1000, 60_000, 7_200_000)
    assert (levels.clamp(19), levels.clamp(3), levels.delay_ms(19), levels.delay_ms(0)) == (18, 3, 1000, 1000)
    assert DelayLevels("2h  1d 3s 4m").levels_ms == (7_200_000, 86_400_000, 3000, 240_000)


@pytest.mark.parametrize("text", ["", "  ", "1", "1x", "s", "1s,5s", "-1s", "1.5s", "1s " * 65, "400d", "²s"])
def test_other_texts_are_refused(text: str) -> None:
    """The error names the setting."""
    with pytest.raises(ConfigError, match="message_delay_level"):
        StoreConfig(message_delay_level=text)


def test_the_times_of_a_message_become_properties() -> None:
    """Seconds become ms; two delays in one message contradict each other."""
    assert Message("t", b"x", delay_time_sec=3).property_map()["TIMER_DELAY_MS"] == "3000"
    assert Message("t", b"x", deliver_time_ms=5).property_map()["TIMER_DELIVER_MS"] == "5"
    assert not Message("t", b"x", delay_time_level=3).is_timed
    with pytest.raises(MessageIllegal, match="delay_time_sec"):
        Message("t", b"x", delay_time_sec=3, delay_time_ms=3)
