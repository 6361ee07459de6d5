"""The sends of an incident, each a dot: when it began, how long it took, whether it was delivered.

Lives here: ``sends_picture``.
"""

import math
from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

WIDTH: Final = 560
HEIGHT: Final = 150
_LEFT: Final = 52
_BOTTOM: Final = 22
DOTS_MAX: Final = 1_500
_LABELS_MS: Final = (1, 10, 100, 1_000, 10_000)


def sends_picture(points: Sequence[tuple[float, float, bool]], label: str) -> Markup:
    """Return the picture of (began s, took ms, delivered); the scale of the time taken is logarithmic.

    Of more than ``DOTS_MAX`` points every n-th is drawn.
    """
    points = points[:: max(1, -(-len(points) // DOTS_MAX))]
    end_s = max((at for at, _, _ in points), default=0.0) or 1.0
    top_ms = max((took for _, took, _ in points), default=1.0)
    top = max(1.0, math.log10(max(top_ms, 10.0)))
    low = HEIGHT - _BOTTOM

    def y(ms: float) -> float:
        return low - min(math.log10(max(ms, 1.0)) / top, 1.0) * (low - 8)

    def x(at_s: float) -> float:
        return _LEFT + max(at_s, 0.0) / end_s * (WIDTH - _LEFT - 8)

    lines = "".join(
        f'<line class="grid" x1="{_LEFT}" x2="{WIDTH}" y1="{y(ms):.1f}" y2="{y(ms):.1f}"/>'
        f'<text x="{_LEFT - 6}" y="{y(ms) + 4:.1f}" text-anchor="end">{ms if ms < 1000 else ms // 1000}'
        f"{' ms' if ms < 1000 else ' s'}</text>"
        for ms in _LABELS_MS
        if ms <= top_ms * 1.5
    )
    dots = "".join(
        f'<circle class="{"delivered" if delivered else "failed"}" cx="{x(at):.1f}" cy="{y(took):.1f}" r="2"/>'
        for at, took, delivered in points
    )
    return Markup(
        '<svg class="sends" viewBox="0 0 {width} {height}" role="img" aria-label="sends of {label}">{lines}{dots}'
        '<text x="{left}" y="{foot}">0 s</text><text x="{width}" y="{foot}" text-anchor="end">{end} s</text></svg>'
    ).format(
        width=WIDTH,
        height=HEIGHT,
        label=label,
        lines=Markup(lines),
        dots=Markup(dots),
        left=_LEFT,
        foot=HEIGHT - 5,
        end=f"{end_s:.1f}",
    )
