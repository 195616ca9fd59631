"""The one form in which benchmarks report: a JSON object a line."""

from __future__ import annotations

import json


def line(
    name: str,
    ours: float,
    peer: float,
    peer_name: str,
    *,
    target: float,
    unit: str,
    ratio: float | None = None,
    more_is_better: bool = False,
    digits: int = 4,
) -> None:
    """Print one measurement; ``ratio`` (how many times better than the peer, in this run) follows from the figures."""
    if ratio is None:
        ratio = ours / peer if more_is_better else peer / ours
    print(
        json.dumps(
            {
                "name": name,
                "ours": round(ours, digits) if digits else round(ours),
                "peer": round(peer, digits) if digits else round(peer),
                "peer_name": peer_name,
                "ratio": round(ratio, 4 if unit.startswith("fraction") else 2),
                "target": target,
                "unit": unit,
            }
        ),
        flush=True,
    )
