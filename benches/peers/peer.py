"""One measurement of one peer, on data that all sides share; processor seconds on standard output, and for evidence the log
evidence, nats, by which it is known that all compute the same.

    peer.py numpy    DIRECTORY SIZE BATCH WARM ROWS      the recursion of the daemon, per row
    peer.py river    DIRECTORY SIZE WARM ROWS            Bayesian linear regression on SIZE radial features, per row
    peer.py gpytorch-update DIRECTORY SIZE ROWS          exact updates of a process of SIZE states, per row
    peer.py sklearn  DIRECTORY N D                       log evidence and gradient
    peer.py gpflow   DIRECTORY N D                       the same, exact
    peer.py gpytorch DIRECTORY N D                       the same, exact, by Cholesky
    peer.py gpflow-sparse | gpytorch-sparse DIRECTORY N SIZE     the variational bound and its gradient
"""

import sys
import time
from pathlib import Path

import numpy as np

DIM = 4
DISCOUNT = 0.95
NOISE = 0.05
RELEVANCE = 0.5
SIGNAL = 1.3
BIAS = 0.4
TIMES = 3


def numbers(directory, name, width=1):
    values = np.fromfile(Path(directory) / name, dtype="<f8")
    return values.reshape(-1, width) if width > 1 else values


def kernel(a, b):
    """The daemon's: v0 exp(-1/2 sum a_d (x_d - y_d)^2) + b, by one product."""
    scale = np.sqrt(RELEVANCE)
    a, b = a * scale, b * scale
    squares = (a * a).sum(1)[:, None] + (b * b).sum(1)[None, :] - 2.0 * a @ b.T
    return SIGNAL * np.exp(-0.5 * np.maximum(squares, 0.0)) + BIAS


def numpy_recursion(directory, size, batch, warm, rows):
    """S, p and the trace z of one chain, weights after every batch; a batch of one row updates an inverse instead."""
    from scipy.linalg import cho_factor, cho_solve, solve_triangular

    states, rewards = numbers(directory, "walk-4.f64", DIM), numbers(directory, "reward-4.f64")
    basis = states[np.random.default_rng(1).choice(warm, size, replace=False)]
    factor = np.linalg.cholesky(kernel(basis, basis) + 1e-8 * np.eye(size))
    gram, response, trace = np.zeros((size, size)), np.zeros(size), np.zeros(size)
    inverse = np.eye(size) / NOISE
    before = time.process_time()
    for start in range(warm, warm + rows, batch):
        block, reward = states[start : start + batch], rewards[start : start + batch]
        features = solve_triangular(factor, kernel(basis, block), lower=True, check_finite=False)
        for k, r in enumerate(reward):
            trace = DISCOUNT * trace + features[:, k]
            response += r * trace
        if batch == 1:
            phi = features[:, 0]
            direction = inverse @ phi
            inverse -= np.outer(direction, direction) / (1.0 + phi @ direction)
            weights = inverse @ response
        else:
            gram += features @ features.T
            system = cho_factor(gram + NOISE * np.eye(size), lower=True, check_finite=False)
            weights = cho_solve(system, response, check_finite=False)
    spent = time.process_time() - before
    assert np.isfinite(weights).all()
    return spent / rows


def river_regression(directory, size, warm, rows):
    from river import linear_model

    states, rewards = numbers(directory, "walk-4.f64", DIM), numbers(directory, "reward-4.f64")
    basis = states[np.random.default_rng(1).choice(warm, size, replace=False)]
    model = linear_model.BayesianLinearRegression(alpha=1.0, beta=1.0 / NOISE)
    names = list(range(size))
    learn = lambda row: model.learn_one(
        dict(zip(names, kernel(basis, states[row : row + 1])[:, 0].tolist())), rewards[row]
    )
    for row in range(warm, warm + 5):
        learn(row)
    before = time.process_time()
    for row in range(warm, warm + rows):
        learn(row)
    return (time.process_time() - before) / rows


def repeated(evaluate):
    """Processor seconds of one evaluation, and the log evidence that it gives."""
    value = evaluate()
    before = time.process_time()
    for _ in range(TIMES):
        evaluate()
    return (time.process_time() - before) / TIMES, float(value)


def problem(directory, n, dim):
    states = numbers(directory, f"states-{dim}.f64", dim)[:n]
    return states, numbers(directory, f"targets-{dim}.f64")[:n]


def sklearn_exact(directory, n, dim):
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    states, targets = problem(directory, n, dim)
    # One lengthscale for each variable, as in the daemon's.
    squared = ConstantKernel(SIGNAL) * RBF(np.full(dim, RELEVANCE**-0.5))
    whole = squared + ConstantKernel(BIAS) + WhiteKernel(NOISE)
    model = GaussianProcessRegressor(whole, optimizer=None).fit(states, targets)
    theta = model.kernel_.theta
    return repeated(lambda: model.log_marginal_likelihood(theta, eval_gradient=True)[0])


def gpflow_kernel(dim):
    import tensorflow as tf

    # Before anything is computed: later they cannot be changed.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    import gpflow

    squared = gpflow.kernels.SquaredExponential(variance=SIGNAL, lengthscales=np.full(dim, RELEVANCE**-0.5))
    return squared + gpflow.kernels.Constant(BIAS)


def gpflow_loss(model):
    import tensorflow as tf

    closure = model.training_loss_closure(compile=True)

    @tf.function
    def evaluate():
        with tf.GradientTape() as tape:
            loss = closure()
        return loss, tape.gradient(loss, model.trainable_variables)

    return repeated(lambda: -evaluate()[0].numpy())


def gpflow_exact(directory, n, dim):
    import gpflow

    states, targets = problem(directory, n, dim)
    kernel = gpflow_kernel(dim)
    model = gpflow.models.GPR((states, targets[:, None]), kernel, noise_variance=NOISE)
    return gpflow_loss(model)


def gpflow_sparse(directory, n, size):
    import gpflow

    states, targets = problem(directory, n, DIM)
    data, kernel = (states, targets[:, None]), gpflow_kernel(DIM)
    inducing = gpflow.inducing_variables.InducingPoints(states[:size].copy())
    gpflow.set_trainable(inducing, False)
    model = gpflow.models.SGPR(data, kernel, inducing, noise_variance=NOISE)
    return gpflow_loss(model)


def gpytorch_model(states, targets, inducing=None):
    import gpytorch
    import torch

    torch.set_num_threads(1)
    states, targets = torch.from_numpy(states.copy()), torch.from_numpy(targets.copy())

    class Model(gpytorch.models.ExactGP):
        def __init__(self, likelihood):
            super().__init__(states, targets, likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            squared = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=states.shape[1]))
            constant = gpytorch.kernels.ConstantKernel()
            # In double precision from the first: a parameter is kept as what a softplus maps to it.
            squared.double(), constant.double()
            squared.base_kernel.lengthscale, squared.outputscale = RELEVANCE**-0.5, SIGNAL
            constant.constant = torch.tensor(BIAS)
            self.covar_module = squared + constant
            if inducing is not None:
                points = torch.from_numpy(inducing.copy())
                self.covar_module = gpytorch.kernels.InducingPointKernel(self.covar_module, points, likelihood)
                # Held where they are, as the daemon's are.
                self.covar_module.inducing_points.requires_grad_(False)

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = NOISE
    return Model(likelihood).double(), likelihood, states, targets


def gpytorch_loss(states, targets, inducing=None):
    import gpytorch

    model, likelihood, states, targets = gpytorch_model(states, targets, inducing)
    model.train(), likelihood.train()
    evidence = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)

    # Cholesky factors, not conjugate gradients: the same number as everybody else's. A matrix of low rank is left to the code
    # for such, which factors the small one; with that turned off the large one would be written out.
    exact = inducing is None

    def evaluate():
        model.zero_grad()
        fast = gpytorch.settings.fast_computations(not exact, not exact, not exact)
        with gpytorch.settings.max_cholesky_size(10**9), fast:
            loss = -evidence(model(states), targets)
            loss.backward()
        # The library's is per state.
        return -loss.item() * len(targets)

    return repeated(evaluate)


def gpytorch_exact(directory, n, dim):
    return gpytorch_loss(*problem(directory, n, dim))


def gpytorch_sparse(directory, n, size):
    states, targets = problem(directory, n, DIM)
    return gpytorch_loss(states, targets, states[:size])


def gpytorch_update(directory, size, rows):
    import gpytorch
    import torch

    states, targets = problem(directory, size + rows, DIM)
    model, likelihood, *_ = gpytorch_model(states[:size], targets[:size])
    model.eval(), likelihood.eval()
    tensor = lambda a: torch.from_numpy(a.copy())
    with torch.no_grad(), gpytorch.settings.fast_pred_var():
        model(tensor(states[:1]))
        before = time.process_time()
        for row in range(size, size + rows):
            model = model.get_fantasy_model(tensor(states[row : row + 1]), tensor(targets[row : row + 1]))
        return (time.process_time() - before) / rows


PEERS = {
    "numpy": numpy_recursion,
    "river": river_regression,
    "sklearn": sklearn_exact,
    "gpflow": gpflow_exact,
    "gpflow-sparse": gpflow_sparse,
    "gpytorch": gpytorch_exact,
    "gpytorch-sparse": gpytorch_sparse,
    "gpytorch-update": gpytorch_update,
}

if __name__ == "__main__":
    name, directory, *arguments = sys.argv[1:]
    found = PEERS[name](directory, *map(int, arguments))
    print(*(f"{number:.9e}" for number in (found if isinstance(found, tuple) else (found,))))
