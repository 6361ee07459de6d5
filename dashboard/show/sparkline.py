"""Small pictures of the last minutes: inline SVG without styles, so that a strict content security policy allows them.

Lives here: ``sparkline``.
"""

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

WIDTH: Final = 120
HEIGHT: Final = 28
_PAD: Final = 2.0


def sparkline(values: Sequence[float], label: str, *, width: int = WIDTH, height: int = HEIGHT) -> Markup:
    """Return the picture of values in the order of time; ``label`` says what they are to who cannot see it.

    The scale begins at 0, so that a small change of a large value looks small.
    """
    points = list(values)
    top = max(points, default=0.0)
    if len(points) < 2:
        points = [0.0, 0.0] if not points else [points[0]] * 2
    step = width / (len(points) - 1)
    room = height - 2 * _PAD
    line = " ".join(
        f"{at * step:.1f},{height - _PAD - (max(value, 0.0) / top * room if top > 0 else 0):.1f}"
        for at, value in enumerate(points)
    )
    area = f"0,{height} {line} {width},{height}"
    return Markup(
        '<svg class="spark" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        'preserveAspectRatio="none" aria-label="{label}"><polygon class="area" points="{area}"/>'
        '<polyline class="line" points="{line}" fill="none" vector-effect="non-scaling-stroke"/></svg>'
    ).format(width=width, height=height, label=label, area=area, line=line)
