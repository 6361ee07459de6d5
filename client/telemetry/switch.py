"""What switches OpenTelemetry on, for one client or for all clients of a process.

Lives here: ``Telemetry`` (providers and what spans may tell), ``instrument`` and ``uninstrument``,
``PocketMQInstrumentor`` for ``opentelemetry-instrument``, ``spans_for``.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pocketmq.client.libraries import library
from pocketmq.common.clock import Clock
from pocketmq.common.errors import ConfigError
from pocketmq.common.events import EventLog

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from pocketmq.client.telemetry.spans import Spans


@dataclass(slots=True, frozen=True, kw_only=True)
class Telemetry:
    """Where the spans and metrics of a client go, and what they may tell.

    ``tracer_provider``, ``meter_provider``: None is OpenTelemetry's global one. ``exception_texts``: spans also have
    the texts of exceptions and of ``Later``. Off by default: such a text may quote the body of a message.
    """

    tracer_provider: "TracerProvider | None" = None
    meter_provider: "MeterProvider | None" = None
    exception_texts: bool = False


TelemetryArgument = Telemetry | bool | None
"""``telemetry=`` of a client: None is the process's setting, True the global providers, False off."""


class _OfProcess:
    """What clients without a setting of their own use; None: they have no telemetry."""

    telemetry: Telemetry | None = None


def instrument(
    tracer_provider: "TracerProvider | None" = None,
    meter_provider: "MeterProvider | None" = None,
    *,
    exception_texts: bool = False,
) -> None:
    """Switch OpenTelemetry on for every client that is made from now on; ``telemetry=`` of a client overrides it.

    Raises ``ConfigError`` where ``opentelemetry-api`` is not installed. The arguments: ``Telemetry``.
    """
    _check_installed()
    _OfProcess.telemetry = Telemetry(
        tracer_provider=tracer_provider, meter_provider=meter_provider, exception_texts=exception_texts
    )


def uninstrument() -> None:
    """Switch it off again, for every client that is made from now on."""
    _OfProcess.telemetry = None


class PocketMQInstrumentor:
    """The entry point ``opentelemetry_instrumentor``: what ``opentelemetry-instrument`` calls before the application.

    It has the methods of OpenTelemetry's ``BaseInstrumentor``, without the package that brings that class.
    """

    def instrument(self, **options: Any) -> None:
        """Switch it on, with ``tracer_provider`` and ``meter_provider`` if they are given."""
        instrument(options.get("tracer_provider"), options.get("meter_provider"))

    def uninstrument(self, **_: Any) -> None:
        """Switch it off."""
        uninstrument()


def spans_for(argument: TelemetryArgument, client_id: str, clock: Clock, log: EventLog) -> "Spans | None":
    """Return the spans of a client, or None where it has no telemetry. Raises ``ConfigError``."""
    if argument is None:
        argument = _OfProcess.telemetry
    if argument is None or argument is False:
        return None
    if argument is True:
        argument = Telemetry()
    if not isinstance(argument, Telemetry):
        raise ConfigError("client refused", why=f"telemetry={argument!r}", hint="True, False or a Telemetry")
    _check_installed()
    from pocketmq.client.telemetry.spans import Spans

    return Spans(argument, client_id, clock, log)


def _check_installed() -> None:
    library("opentelemetry.trace", "otel", "no telemetry")
    library("opentelemetry.metrics", "otel", "no telemetry")
