"""Connections: the same load over one, ten and five hundred of them."""

from bench.comparison.case import Case, Scale, Variant
from bench.peers import Peer

SIZE_BYTES = 1024
IN_FLIGHT = 500
FRAME = 16
KINDS = {1: "single sends", FRAME: f"frames of {FRAME}"}


class Connections(Case):
    """500 sends are on the way in each variant; only the number of connections differs."""

    name = "connections"
    title = "1, 10 and 500 connections, 1 KiB"
    text = (
        f"Closed loop with {IN_FLIGHT} sends on the way, spread over the connections: single messages, and frames of "
        f"{FRAME}. All connections belong to one client process. Redis needs a connection for each command on its way, "
        "so its count is that of its pools."
    )
    chart = "scaling"
    x_label = "connections"

    def variants(self, scale: Scale) -> list[Variant]:
        """Each number with single sends and with frames."""
        return [
            Variant(
                f"{connections} connection{'s' * (connections > 1)}, {KINDS[batch]}",
                {"size_bytes": SIZE_BYTES, "in_flight": IN_FLIGHT, "batch": batch, "connections": connections},
                x=connections,
                round_s=3.0 if connections < 500 else 6.0,
                repeats=2,
            )
            for batch in KINDS
            for connections in (1, 10, 500)
        ]

    def refuses(self, peer: Peer, variant: Variant) -> str:
        """Some clients bring threads with each connection."""
        if variant.conditions["connections"] > peer.connections_max:
            return f"each of its clients keeps threads of its own: more than {peer.connections_max} do not fit"
        return super().refuses(peer, variant)
