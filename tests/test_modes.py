"""The table of modes says what brokers take and refuse."""

import msgspec
import pytest

from pocketmq.common.errors import ConfigError
from pocketmq.store.config import StoreConfig
from tests.e2e.kinds import LOADS
from tests.modes import APPENDS, FLUSHES, KINDS, LEGAL, MODES, POOLS, SHAPES, Mode, in_turn

ILLEGAL = [mode for mode in MODES if mode.why_not]


@pytest.mark.parametrize("mode", LEGAL, ids=str)
def test_a_broker_takes_each_legal_mode(mode: Mode) -> None:
    """The settings of a legal mode make a configuration."""
    config = msgspec.convert(mode.store_settings, StoreConfig)
    assert (config.append_mode, config.flush_disk_type) == (mode.append, mode.flush)
    assert config.pool_survives == (mode.pool == "surviving")


@pytest.mark.parametrize("mode", ILLEGAL, ids=str)
def test_a_broker_refuses_each_illegal_mode_with_its_reason(mode: Mode) -> None:
    """The refusal names both settings and gives the reason of the table."""
    with pytest.raises(ConfigError) as refused:
        msgspec.convert(mode.store_settings, StoreConfig)
    text = str(refused.value)
    assert mode.why_not in text
    assert "transient_store_pool_enable=true with flush_disk_type=SYNC_FLUSH" in text


def test_no_slave_takes_write_buffers() -> None:
    """So the rounds leave them out of the settings of a slave."""
    for mode in LEGAL:
        if mode.pool != "none":
            with pytest.raises(ConfigError, match="broker_role=SLAVE"):
                msgspec.convert({**mode.store_settings, "broker_role": "SLAVE"}, StoreConfig)


def test_the_rounds_go_through_every_legal_mode_and_kind() -> None:
    """Each combination is legal or refused, every legal one has its turn, and each kind has a load."""
    assert len(MODES) == len(APPENDS) * len(POOLS) * len(FLUSHES) * len(SHAPES)
    assert len(LEGAL) + len(ILLEGAL) == len(MODES)
    assert set(in_turn(7)) == set(LEGAL)
    assert {mode.shape for mode in in_turn(7, ("pair",))} == {"pair"}
    assert {"plain", *LOADS} == set(KINDS)
