"""How returns scatter about values."""

from __future__ import annotations

from dataclasses import dataclass

from criticd._protocol import Array


@dataclass(frozen=True, eq=False)
class ReturnSpread:
    """Variance of the return to come about V(x), for each of H rewards: max(floor, level + k_m(x)' weights).

    ```python
    if model.returns is not None:
        print(model.returns.factor, model.returns.coverage)
    ```

    `level` and `floor` are (H,), `weights` (m, H). `factor` multiplies deviations of returns: what predictions and the
    returns that followed, of which there were `pairs`, have shown them to lack; 1 while there are too few. `coverage`,
    from 0 to 1, is the share of these returns in the 90 % interval before `factor`; None if unknown.
    """

    level: Array
    weights: Array
    floor: Array
    factor: float
    pairs: int
    coverage: float | None = None
