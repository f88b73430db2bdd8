"""Returns that followed states, and how much of them values explain: what critics are judged by.

```python
returns = np.array([3.0, 2.0, 1.0])
print(explained_variance(returns + 0.1, returns))
```
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from criticd._protocol import Array

Flags: TypeAlias = npt.NDArray[np.bool_]


def explained_variance(predicted: npt.ArrayLike, returns: npt.ArrayLike) -> float:
    """1 - Var(returns - predicted) / Var(returns), both (n,): 1 is perfect, 0 no better than a constant.

    Not a number if the returns are all alike.
    """
    targets = np.asarray(returns, np.float64)
    spread = targets.var()
    return float("nan") if spread == 0 else float(1 - (targets - np.asarray(predicted, np.float64)).var() / spread)


def discounted_returns(rewards: Array, terminated: Flags, cut: Flags, after: Array, discount: float) -> Array:
    """Returns (n, E) of n steps in E copies of an environment.

    ```text
    G_t = r_t + discount * (0 if terminated_t, after_t if cut_t, else G_t+1)
    ```
    `rewards` (n, E); `terminated` and `cut` (n, E) are booleans, and the last step of each copy is one of the two;
    `after` (n, E) is the value of the state in which a cut step ended, any number elsewhere.
    """
    returns = np.zeros_like(rewards)
    ahead = np.zeros(rewards.shape[1])
    for t in reversed(range(len(rewards))):
        ahead = np.where(terminated[t], 0.0, np.where(cut[t], after[t], ahead))
        ahead = returns[t] = rewards[t] + discount * ahead
    return returns
