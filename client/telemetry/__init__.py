"""OpenTelemetry: spans and metrics of producers and consumers, by the semantic conventions for messaging.

    switch        what switches it on: ``telemetry=``, ``instrument()``, ``opentelemetry-instrument``
    conventions   the names of attributes and metrics
    context       the trace context of a message, in its properties
    attributes    what a message, a receipt or an error says about itself
    spans         the spans and metrics of one client

Only ``switch`` is imported with the SDK. The rest needs ``opentelemetry-api`` (``pip install 'pocketmq[otel]'``), and
is imported by the first client that is switched on. Where operations begin and end is not known here: producers call
it from a stage (``producer.send_telemetry``), consumers around their handlers (``handlers.process_telemetry``) and
after their pulls.
"""

from pocketmq.client.telemetry.switch import PocketMQInstrumentor, Telemetry, instrument, uninstrument

__all__ = ["PocketMQInstrumentor", "Telemetry", "instrument", "uninstrument"]
