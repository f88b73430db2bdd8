"""A snapshot as a module of PyTorch. The gate leaves it out: PyTorch is larger than all else together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from test_models import COLUMNS, KINDS, of, states_for

pytestmark = pytest.mark.nightly


@pytest.fixture(name="torch")
def the_package() -> Any:
    return pytest.importorskip("torch")


@pytest.mark.parametrize("profile", ["gaussian", "matern52"])
@pytest.mark.parametrize("kind", ["isotropic", "ard", "factor"])
@pytest.mark.parametrize("kinds", list(KINDS))
@pytest.mark.parametrize("rewards", [1, 3])
def test_the_module_is_the_snapshot(profile: str, kind: str, kinds: str, rewards: int, torch: Any) -> None:
    assert set(COLUMNS) < set(KINDS)
    snapshot = of(profile, kind, kinds, rewards)
    states = states_for(snapshot, 40)
    given = torch.tensor(states, requires_grad=True)
    mean, deviation = snapshot.to_torch()(given)
    expected, spread = snapshot(states, std=True)
    np.testing.assert_allclose(mean.detach().numpy(), expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(deviation.detach().numpy(), spread, rtol=1e-6, atol=1e-6)
    first = mean if rewards == 1 else mean[:, 0]
    first.sum().backward(retain_graph=True)
    slopes = snapshot.gradient(states)
    np.testing.assert_allclose(given.grad, slopes if rewards == 1 else slopes[:, :, 0], rtol=1e-8, atol=1e-9)


def test_it_is_differentiated_where_roots_have_no_slope(torch: Any) -> None:
    snapshot = of("matern52", "ard", "real")
    states = torch.tensor(snapshot.dictionary * snapshot.scale + snapshot.shift, requires_grad=True)
    mean, deviation = snapshot.to_torch()(states)
    (mean.sum() + deviation.sum()).backward()
    assert torch.isfinite(states.grad).all()


def test_its_numbers_are_buffers_that_do_not_train(torch: Any) -> None:
    snapshot = of("gaussian", "factor", "mixed")
    module = snapshot.to_torch()
    assert list(module.parameters()) == [] and "basis" in module.state_dict()
    states = states_for(snapshot, 5)
    other = replace(snapshot, weights=2 * snapshot.weights).to_torch()
    other.load_state_dict(module.state_dict())
    for given in (torch.tensor(states), torch.tensor(states, dtype=torch.float32)):
        assert torch.equal(other(given)[0], module(given)[0])
    mean, nothing = replace(snapshot, covariance=None).to_torch()(torch.tensor(states))
    assert nothing is None and torch.allclose(mean, module(torch.tensor(states))[0])
