"""The mixture that values come from where something tracks the stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from criticd._protocol import Array


@dataclass(frozen=True, eq=False)
class Tracked:
    """What lies under the weights of a mixture of the base and of trackers, small models that forget.

    ```python
    if model.tracked is not None:
        print(model.tracked.half_life)
    ```

    `base` (m, H) are the weights of the base. `gate` (H,), from 0 to 1, is how far the mixture is let in.
    `half_life` (H,) is that, in rows, which half of the trackers' weight does not exceed; 0 where the gate is shut.
    """

    base: Array
    gate: Array
    half_life: Array

    def message(self) -> dict[str, Any]:
        """As it stands in a snapshot."""
        base = self.base[:, 0] if self.base.shape[1] == 1 else self.base
        return {"base": base, "gate": self.gate, "half_life": self.half_life}

    def shapes(self, m: int, rewards: int) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
        """Shapes that are there, and those that fit a model of m features and H rewards."""
        return {
            "tracked.base": (self.base.shape, (m, rewards)),
            "tracked.gate": (self.gate.shape, (rewards,)),
            "tracked.half_life": (self.half_life.shape, (rewards,)),
        }


def checked(base: Array, gate: Array, half_life: Array) -> Tracked:
    """Raises `ValueError` for what no daemon sends."""
    if not ((gate >= 0) & (gate <= 1)).all() or not (half_life >= 0).all():
        raise ValueError("a gate that is not from 0 to 1, or a negative half-life")
    return Tracked(base, gate, half_life)
