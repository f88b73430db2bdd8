"""A value function as an ONNX graph, for runtimes that know neither Python nor the daemon."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from criticd._output import write_whole

if TYPE_CHECKING:
    from criticd.heads import HeadModels
    from criticd.snapshot import Kernel, Snapshot

_OPSET = 17
_IR_VERSION = 8
"""Of 2022, which runtimes of today and most on devices read."""


class _Graph:
    """Nodes in the order in which they are evaluated. All numbers are 64-bit floats."""

    def __init__(self) -> None:
        from onnx import helper, numpy_helper

        self.helper, self.numpy_helper = helper, numpy_helper
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.outputs: list[Any] = []

    def constant(self, value: Any) -> str:
        """The name of an array."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(self.numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, op: str, *inputs: Any, **attributes: Any) -> str:
        """The name of the result of `op`. Inputs are names, or arrays that become constants."""
        names = [item if isinstance(item, str) else self.constant(item) for item in inputs]
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(op, names, [name], name, **attributes))
        return name

    def output(self, name: str, source: str, shape: Sequence[Any]) -> None:
        """Call a result `name` to the outside."""
        from onnx import TensorProto

        self.nodes.append(self.helper.make_node("Identity", [source], [name], name))
        self.outputs.append(self.helper.make_tensor_value_info(name, TensorProto.DOUBLE, shape))


def write(snapshot: Snapshot, path: str | os.PathLike[str]) -> None:
    """Write `snapshot` as `Snapshot.to_onnx` says."""
    try:
        import onnx
    except ImportError as error:
        raise ImportError("Snapshot.to_onnx needs the package onnx: pip install onnx") from error
    graph = _Graph()
    _values(graph, snapshot)
    states = graph.helper.make_tensor_value_info("states", onnx.TensorProto.DOUBLE, ["n", snapshot.dim])
    value = graph.helper.make_graph(graph.nodes, "value", [states], graph.outputs, graph.constants)
    model = graph.helper.make_model(
        value,
        producer_name="criticd",
        doc_string="Value function learned by criticd: expected discounted sum of rewards from a state on.",
        opset_imports=[graph.helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
    )
    graph.helper.set_model_props(model, _metadata(snapshot))
    onnx.checker.check_model(model)
    write_whole(path, model.SerializeToString())


def _metadata(snapshot: Snapshot) -> dict[str, str]:
    return {
        "critic": snapshot.critic,
        "generation": str(snapshot.generation),
        "revision": str(snapshot.revision),
        "offset": str(snapshot.offset),
        "transitions": str(snapshot.transitions),
        "time": repr(snapshot.time),
        "discount": repr(snapshot.discount),
        "lambda": repr(snapshot.lambda_),
        "provisional": "true" if snapshot.provisional else "false",
        "state_names": ",".join(snapshot.names or ()),
        **({"heads": json.dumps(list(snapshot.heads))} if snapshot.heads else {}),
        **({} if snapshot.actions is None else {"actions": json.dumps(snapshot.actions.space())}),
    }


def _values(graph: _Graph, snapshot: Snapshot) -> None:
    """The outputs, from the input `states` (n, D)."""
    k = _kernel_rows_of_states(graph, snapshot)
    _rewards(graph, snapshot, k)
    _heads(graph, snapshot, k)


def _kernel_rows_of_states(graph: _Graph, snapshot: Snapshot) -> str:
    """k_m(z) (n, m), from the input `states`."""
    normalised = graph.node("Div", graph.node("Sub", "states", snapshot.shift), snapshot.scale)
    return _kernel_rows(graph, snapshot.kernel, normalised, snapshot)


def _rewards(graph: _Graph, snapshot: Snapshot, k: str) -> None:
    """The outputs of the rewards, from the kernel rows (n, m)."""
    kernel, single = snapshot.kernel, snapshot.weights.shape[1] == 1
    last = np.array([1], np.int64)

    def shaped(name: str) -> str:
        return graph.node("Squeeze", name, last) if single else name

    shape = ["n"] if single else ["n", snapshot.weights.shape[1]]
    mean = graph.node("MatMul", k, snapshot.weights)
    if snapshot.actions is not None and snapshot.actions.prior_mean:
        mean = graph.node("Add", mean, np.array(snapshot.actions.prior_mean))
    if len(snapshot.level):
        mean = graph.node("Add", mean, snapshot.level)
    graph.output("mean", shaped(mean), shape)
    if snapshot.covariance is None:
        return
    explained = graph.node("Mul", graph.node("MatMul", k, snapshot.covariance), k)
    explained = graph.node("ReduceSum", explained, last, keepdims=1)
    prior = _prior(graph, kernel, k)
    variance = graph.node("Max", graph.node("Sub", prior, explained), np.array(0.0))
    graph.output("std", graph.node("Squeeze", graph.node("Sqrt", variance), last), ["n"])
    spread = snapshot.returns
    if spread is None:
        return
    scatter = graph.node("Add", graph.node("MatMul", k, spread.weights), spread.level)
    scatter = graph.node("Add", graph.node("Max", scatter, spread.floor), variance)
    deviation = graph.node("Mul", graph.node("Sqrt", scatter), np.array(spread.factor))
    graph.output("return_std", shaped(deviation), shape)


def _heads(graph: _Graph, snapshot: Snapshot, k: str) -> None:
    """Outputs of all H heads, each (n, H), from the kernel rows (n, m) of `snapshot`."""
    parts = [_heads_of_kernel(graph, snapshot.head_models, k, snapshot.kernel)] if snapshot.head_models else []
    branch = snapshot.branch
    if branch is not None and branch.head_models is not None:
        rows = _kernel_rows_of_states(graph, branch)
        parts.append(_heads_of_kernel(graph, branch.head_models, rows, branch.kernel))
    shape = ["n", len(snapshot.heads)]
    for number, name in enumerate(("heads", "heads_std", "heads_return_std")):
        answers = [part[number] for part in parts if len(part) > number]
        if answers and len(answers) == len(parts):
            graph.output(name, answers[0] if len(answers) == 1 else graph.node("Concat", *answers, axis=1), shape)


def _heads_of_kernel(graph: _Graph, models: HeadModels, k: str, kernel: Kernel) -> list[str]:
    """What heads with one kernel say, each (n, H): values; with variances their deviations and those of returns too.

    Variances share the products of a weighting.
    """
    mean = graph.node("MatMul", k, models.weights)
    if models.level.any():
        mean = graph.node("Add", mean, models.level)
    if not models.bases:
        return [mean]
    weightings, explained = np.array(models.weightings), ""
    for number, (vectors, values) in enumerate(models.bases):
        images = graph.node("MatMul", k, vectors)
        shares = values[:, None] / (values[:, None] + models.ratios) * (weightings == number)
        part = graph.node("MatMul", graph.node("Mul", images, images), shares)
        explained = graph.node("Add", explained, part) if explained else part
    left = graph.node("Max", graph.node("Sub", _prior(graph, kernel, k), explained), np.array(0.0))
    variance = graph.node("Mul", left, models.signals)
    whole = graph.node("Sqrt", graph.node("Add", variance, models.signals * models.ratios))
    return [mean, graph.node("Sqrt", variance), graph.node("Mul", whole, models.factors)]


def _prior(graph: _Graph, kernel: Kernel, k: str) -> Any:
    """k(z, z) (n, 1), from the kernel rows (n, m), which begin with s f(z) of the columns; else one number."""
    if not kernel.columns:
        return np.array(kernel.diagonal)
    q, axis = np.array([len(kernel.columns)], np.int64), np.array([1], np.int64)
    given = graph.node("Slice", k, np.array([0], np.int64), q, axis)
    squares = graph.node("Div", graph.node("Mul", given, given), kernel.column_variances)
    return graph.node("Add", graph.node("ReduceSum", squares, axis, keepdims=1), np.array(kernel.diagonal))


def _given(graph: _Graph, kernel: Kernel, normalised: str) -> list[str]:
    """Of each column s f(z) (n, 1)."""
    from criticd.snapshot import function_of, period_of

    found = []
    for column, variance in zip(kernel.columns, kernel.column_variances, strict=True):
        name, variable = function_of(column)
        x = graph.node("Gather", normalised, np.array([variable or 0], np.int64), axis=1)
        if name == "constant":
            found.append(graph.node("Add", graph.node("Mul", x, np.array(0.0)), np.array(variance)))
            continue
        if name != "linear":
            assert variable is not None
            turns = graph.node("Div", x, np.array(period_of(kernel.kinds[variable])))
            angle = graph.node("Mul", graph.node("Sub", turns, graph.node("Round", turns)), np.array(2 * np.pi))
            x = graph.node("Cos" if name == "cosine" else "Sin", angle)
        found.append(graph.node("Mul", x, np.array(variance)))
    return found


def _kernel_rows(graph: _Graph, kernel: Kernel, normalised: str, snapshot: Snapshot) -> str:
    """k_m(z) (n, m). Differences are squared one by one, as `Snapshot` does: no cancellation."""
    basis = kernel.project(snapshot.dictionary)
    middle, last = np.array([1], np.int64), np.array([2], np.int64)
    points = graph.node("Unsqueeze", _projected(graph, kernel, normalised, snapshot.dim), middle)
    apart = graph.node("Sub", points, basis[None])
    squared = graph.node("ReduceSum", graph.node("Mul", apart, apart), last, keepdims=0)
    categories = [d for d, kind in enumerate(kernel.kinds) if kind == "category"]
    if categories:
        from onnx import TensorProto

        chosen = graph.node("Gather", normalised, np.array(categories, np.int64), axis=1)
        same = graph.node("Equal", graph.node("Unsqueeze", chosen, middle), snapshot.dictionary[None][..., categories])
        differ = graph.node("Cast", graph.node("Not", same), to=TensorProto.DOUBLE)
        weighted = graph.node("Mul", differ, 2 * kernel.relevance[categories])
        squared = graph.node("Add", squared, graph.node("ReduceSum", weighted, last, keepdims=0))
    if kernel.profile == "matern52":
        a = graph.node("Sqrt", graph.node("Mul", squared, np.array(5.0)))
        a = graph.node("Min", a, np.array(1e3))
        polynomial = graph.node("Add", a, graph.node("Div", graph.node("Mul", a, a), np.array(3.0)))
        polynomial = graph.node("Add", polynomial, np.array(1.0))
        shape = graph.node("Mul", polynomial, graph.node("Exp", graph.node("Neg", a)))
    else:
        shape = graph.node("Exp", graph.node("Mul", squared, np.array(-0.5)))
    scaled = graph.node("Mul", shape, np.array(kernel.signal_variance))
    spanned = graph.node("Add", scaled, np.array(kernel.bias_variance))
    if not kernel.columns:
        return spanned
    return graph.node("Concat", *_given(graph, kernel, normalised), spanned, axis=1)


def _projected(graph: _Graph, kernel: Kernel, normalised: str, dim: int) -> str:
    """`Kernel.project` as a graph."""
    from criticd.snapshot import period_of

    roots = np.sqrt(kernel.relevance)
    if kernel.kinds:
        columns = []
        for d, (root, kind) in enumerate(zip(roots, kernel.kinds, strict=True)):
            period = period_of(kind)
            if period is None and kind != "real":
                continue
            x = graph.node("Gather", normalised, np.array([d], np.int64), axis=1)
            if period is None:
                columns.append(graph.node("Mul", x, np.array(root)))
                continue
            turns = graph.node("Div", x, np.array(period))
            angle = graph.node("Mul", graph.node("Sub", turns, graph.node("Round", turns)), np.array(2 * np.pi))
            columns += [graph.node("Mul", graph.node(part, angle), np.array(root)) for part in ("Cos", "Sin")]
    else:
        columns = [graph.node("Mul", normalised, roots)]
    if len(kernel.factors):
        real = np.array([kind == "real" for kind in kernel.kinds]) if kernel.kinds else np.ones(dim)
        columns.append(graph.node("MatMul", normalised, (kernel.factors * real).T))
    if not columns:
        # Categories alone: all points are one, and what keeps them apart is added later.
        return graph.node("MatMul", normalised, np.zeros((dim, 1)))
    return columns[0] if len(columns) == 1 else graph.node("Concat", *columns, axis=1)
