"""One page of figures: a Markdown file and a picture beside it, from what `run.py` has measured.

A result of a drifting stream is `{"stream", "seed", "discount", "change", "peers": {title: [first, second]}, "ours":
{pace: figures of `asked.judged`}}`.
"""

import numpy as np
import table

RIVALS = ("SwiftTD", "Stream TD", "Intentional TD", "LSTD, half-life")
"""Peers that learn values; the forests regress only, and the last value is no learner."""
OTHERS = ("AMF", "ARF", "last value")
EACH_200, EACH_100 = (0.88, 0.92), (0.86, 0.94)
RAMP_FIRST_FIFTH = 30_000 + 4_000
WIDE = 0.3
"""An interval is falsely wide if it is that wide, in deviations of V, and three times as wide as the error is large."""


def pair(errors):
    return " / ".join(table.number(error, ".3f") for error in errors)


def span(shares):
    return f"{min(shares):.2f} to {max(shares):.2f}" if shares else "-"


def kind(result):
    """Whether a stream is a series or a world that was made to change."""
    return "worlds" if result["stream"].split("/")[0] in ("walk", "pendulum", "linear", "hidden") else "series"


def rival(result):
    """Title and errors of the peer with the smallest error in the second window, or None."""
    there = {title: errors for title, errors in result["peers"].items() if title in RIVALS and errors[1] is not None}
    return min(there.items(), key=lambda item: item[1][1]) if there else None


def ratio(result, figures):
    """Our error in the second window over the best rival's, or None."""
    best, ours = rival(result), figures["errors"][1]
    return None if best is None or ours is None else ours / best[1][1]


def first_selected(selected, pace):
    """Where the first model came that was selected, and how long after the 500th row if rows did not wait for it."""
    if selected is None:
        return "never"
    told = pace != "waiting" and selected["row"] >= 500
    after = f", {selected['seconds']:.1f} s after row 500" if told else ""
    return f"row {selected['row']}{after}"


def happened(figures):
    """Refits, changes of models, and how often the gate was open, shortly."""
    counts = {name: len(rows) for name, rows in figures["events"].items()}
    parts = [f"{figures['refits']['adopted']} of {figures['refits']['started']} refits"]
    parts += [
        f"{counts[name]} {name}" for name in ("drift", "forked", "swapped", "dismissed", "returned") if name in counts
    ]
    open_at = np.mean([gate > 0.0 for gate in figures["gates"] if gate is not None] or [0.0])
    return ", ".join([*parts, *([f"gate open at {open_at:.0%} of looks"] if open_at > 0.0 else [])])


def drifting_table(results):
    """The lines of a table of drifting streams."""
    titles = [*RIVALS, *(t for t in OTHERS if any(t in r["peers"] for r in results))]
    head = ["stream", "pace", "criticd", "/ best", *titles, "each 200", "each 100", "first selected", "what happened"]
    yield "| " + " | ".join(head) + " |"
    yield "| " + " | ".join(["---"] * len(head)) + " |"
    for result in results:
        peers = [pair(result["peers"].get(title, ())) or "-" for title in titles]
        for pace, figures in (result["ours"] or {"-": None}).items():
            name = f"{result['stream']}, seed {result['seed']}" if result["seed"] else result["stream"]
            if figures is None:
                cells = [name, pace, "-", "-", *peers, "-", "-", "-", "-"]
            else:
                cells = [name, pace, pair(figures["errors"]), table.number(ratio(result, figures), ".2f"), *peers]
                cells += [span(figures["each_200"]), span(figures["each_100"])]
                cells += [first_selected(figures["selected"], pace), happened(figures)]
            yield "| " + " | ".join(cells) + " |"


def looks_table(results):
    """Held-out values while a slow change or a bias goes on, beside a fit of the last 4000 rows."""
    yield "| stream | pace | row | error | fresh fit | ratio | 90 % interval holds | its deviation |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for result in results:
        for pace, figures in result["ours"].items():
            for look in figures["looks"]:
                if "fresh" in look:
                    cells = [result["stream"], pace, str(look["row"]), f"{look['error']:.3f}", f"{look['fresh']:.3f}"]
                    cells += [f"{look['error'] / look['fresh']:.2f}", f"{look['coverage']:.2f}", f"{look['width']:.2f}"]
                    yield "| " + " | ".join(cells) + " |"


def each(results):
    """(result, pace, figures) of everything of ours."""
    return [(result, pace, figures) for result in results for pace, figures in result["ours"].items()]


def most(text, found, wanted):
    """The goal that no value may exceed what is wanted: `found` is {name: value}."""
    found = {name: value for name, value in found.items() if value is not None}
    if found:
        worst = max(found, key=found.get)
        above = sum(value > wanted for value in found.values())
        said = f"{found[worst]:.3f} ({worst}), {above} of {len(found)} above"
        yield table.goal(text, said, f"{wanted:g}", above == 0)


def series_goals(results):
    ours = each(results)
    electric = {f"{r['stream']} {pace}": f["errors"] for r, pace, f in ours if r["stream"].startswith("ETTh2/OT")}
    yield from most("ETTh2, first half", {name: errors[0] for name, errors in electric.items()}, 0.45)
    yield from most("ETTh2, second half", {name: errors[1] for name, errors in electric.items()}, 0.36)
    trump = {pace: figures for result, pace, figures in ours if result["stream"] == "trump"}
    yield from most("TrumpApproval, mean error from row 64", {p: f["from_row_64"] for p, f in trump.items()}, 0.22)
    yield from most("TrumpApproval, from row 1", {p: f["from_row_1"] for p, f in trump.items()}, 0.25)
    first = {pace: figures["answered"] + 1 for pace, figures in trump.items() if figures["answered"] is not None}
    yield from most("TrumpApproval, first row with an answer", first, 2)
    others = {f"{r['stream']} {pace}": ratio(r, f) for r, pace, f in ours if not r["stream"].startswith("ETTh2/OT")}
    yield from most("other streams, second half over the best rival's", others, 1.2)


def speed_goals(results):
    """Of the first model that was selected, where rows did not wait for it; one of fewer than 500 rows took no time after them."""
    found = {
        f"{r['stream']} {pace}": f["selected"]["seconds"] if f["selected"]["row"] >= 500 else 0.0
        for r, pace, f in each(results)
        if pace != "waiting" and f["selected"]
    }
    yield from most("first selected model, seconds after row 500", found, 2.0)


def coverage_goals(results):
    for text, key, (low, high) in (
        ("returns covered in each 200 horizons", "each_200", EACH_200),
        ("returns covered in each 100 horizons", "each_100", EACH_100),
    ):
        found = {f"{r['stream']} {pace}": f[key] for r, pace, f in each(results) if f[key]}
        if found:
            shares = [share for pieces in found.values() for share in pieces]
            outside = sum(not low <= share <= high for share in shares)
            worst = min(found, key=lambda name: min(found[name]))
            said = f"{span(shares)} (least: {worst}), {outside} of {len(shares)} outside"
            yield table.goal(text, said, f"{low} to {high}", outside == 0)


def look_goals(results):
    fitted = {
        f"{r['stream']} {pace} row {look['row']}": look["error"] / look["fresh"]
        for r, pace, f in each(results)
        for look in f["looks"]
        if "fresh" in look and look["row"] >= (r["change"] or 0)
    }
    yield from most("error after the change over the error of a fit of the last 4000 rows", fitted, 2.0)
    held = {
        f"{r['stream']} {pace} row {look['row']}": look["coverage"]
        for r, pace, f in each(results)
        for look in f["looks"]
        if r["stream"] in ("linear/ramp", "linear/bias", "walk/slow") and look["row"] >= RAMP_FIRST_FIFTH
    }
    if held:
        low = min(held, key=held.get)
        below = sum(value < 0.7 for value in held.values())
        said = f"{held[low]:.2f} ({low}), {below} of {len(held)} looks below"
        yield table.goal("90 % interval of V from the ramp's first fifth on", said, "0.7", below == 0)
    calm = [
        look
        for r, _, f in each(results)
        for look in f["looks"]
        if not look["provisional"] and (r["change"] is None or look["row"] < r["change"])
    ]
    if calm:
        wide = sum(look["width"] > max(WIDE, 3.0 * look["error"]) for look in calm)
        share = wide / len(calm)
        said = f"{wide} of {len(calm)} looks ({share:.1%})"
        yield table.goal("falsely wide without change", said, "3 %", share <= 0.03)


def stationary_lines(results, extra):
    """The goals of the streams that do not change, and the figures of each."""
    groups = table.by_stream(results)
    yield from table.error_goals(groups)
    yield from table.certainty_goals(groups, (), extra)
    gates = [result["ours"]["chosen"].get("gate") for result in results if result["ours"]]
    gates = [gate for gate in gates if gate is not None]
    if gates:
        shut = np.mean([gate == 0.0 for gate in gates])
        yield table.goal("the gate is shut", f"{shut:.0%} of {len(gates)} fits", "80 %", shut >= 0.8)


def text(stationary, extra, drifting, command):
    """The page, as lines of Markdown."""
    lines = ["# Values beside other learners' values", "", f"`{command}`", ""]
    groups = {name: [r for r in drifting if kind(r) == name] for name in ("series", "worlds")}
    if drifting:
        lines += [
            "Every learner is asked for the value of a state before it learns that row. Errors are root mean squares",
            "over the deviation of the returns that came, at discount 0 mean absolute errors: in the first and in the",
            "second half of a series, before and after the change of a world. `/ best` is ours over the best",
            "rival's in the second. `each 200` and `each 100` are the least and the largest share of returns in their",
            "90 % interval, in pieces of these horizons.",
            "",
        ]
    for title, name in (("## Series", "series"), ("## Worlds that change at row 30 000", "worlds")):
        if groups[name]:
            lines += [title, "", *drifting_table(groups[name]), ""]
    if any("fresh" in look for _, _, figures in each(drifting) for look in figures["looks"]):
        lines += ["## Values while the world moves", "", *looks_table(drifting), ""]
    if stationary:
        lines += ["## Streams that do not change", ""]
        lines += ["```text", *table.lines_of(stationary), "```", ""]
    goals = [*series_goals(groups["series"]), *coverage_goals(drifting), *look_goals(drifting)]
    goals += speed_goals(drifting)
    goals += stationary_lines(stationary, extra)
    lines += ["## Goals", "", "```text", *goals, "```", ""]
    return "\n".join(lines)


# ---------------------------------------------------------------------------------------------------------------------
# The picture


def picture(stationary, drifting, path):
    """Errors beside the peers', coverage, and values while the world moves: whatever of these was measured."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, ((streams, coverage), (looks, calm)) = pyplot.subplots(2, 2, figsize=(14, 10), layout="constrained")
    draw_errors(streams, drifting)
    draw_coverage(coverage, drifting)
    draw_looks(looks, drifting)
    draw_stationary(calm, stationary)
    for axes in (streams, coverage, looks, calm):
        if not axes.has_data():
            axes.clear()
            axes.set_axis_off()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def draw_errors(axes, drifting):
    """Second halves, over the best rival's."""
    axes.set_title("Error after the change or in the second half, over the best rival's")
    rows = [result for result in drifting if rival(result) is not None]
    for y, result in enumerate(rows):
        best = rival(result)[1][1]
        for title in RIVALS:
            errors = result["peers"].get(title)
            if errors and errors[1] is not None:
                axes.plot(min(errors[1] / best, 10.0), y, "|", color="0.6", markersize=9)
        for figures, mark in zip(result["ours"].values(), "osd^", strict=False):
            if figures["errors"][1] is not None:
                axes.plot(min(figures["errors"][1] / best, 10.0), y, mark, color="C0")
    if rows:
        axes.axvline(1.2, color="C3", linewidth=0.8)
        axes.set_xscale("log")
    axes.set_yticks(range(len(rows)), [result["stream"] for result in rows], fontsize=7)
    axes.set_xlabel("grey: the rivals; blue: criticd, a mark for each pace")


def draw_coverage(axes, drifting):
    """Shares of returns in their interval, piece after piece."""
    axes.set_title("Returns in their 90 % interval, each 100 horizons")
    for result, _, figures in each(drifting):
        shares = figures["each_100"]
        colour = "C1" if kind(result) == "series" else "C0"
        axes.plot(np.linspace(0.0, 1.0, len(shares)), shares, color=colour, alpha=0.5, marker=".", linewidth=0.8)
    if drifting:
        axes.axhspan(*EACH_100, color="0.9", zorder=0)
    axes.set_ylim(0.0, 1.02)
    axes.set_xlabel("share of the stream; orange: series, blue: worlds that change halfway")


def draw_looks(axes, drifting):
    """Error of V at held-out states of the moment, and of fits of the last 4000 rows."""
    axes.set_title("Error of V at held-out states; dashed: a fit of the last 4000 rows")
    shown = [(r, pace, f) for r, pace, f in each(drifting) if any("fresh" in look for look in f["looks"])]
    for number, (result, pace, figures) in enumerate(shown):
        rows = [look["row"] for look in figures["looks"]]
        label = f"{result['stream']}, {pace}"
        axes.plot(rows, [look["error"] for look in figures["looks"]], color=f"C{number}", label=label)
        compared = [look for look in figures["looks"] if "fresh" in look]
        axes.plot([k["row"] for k in compared], [k["fresh"] for k in compared], "--", color=f"C{number}")
    if shown:
        axes.set_yscale("log")
        axes.legend(fontsize=8)
    axes.set_xlabel("row")


def draw_stationary(axes, stationary):
    """Our error over the best LSTD, stream by stream."""
    axes.set_title("Streams that do not change: error over the best LSTD's")
    groups = table.by_stream(stationary)
    found = {name: table.ratio(group, table.errors(group, "LSTD")) for name, group in groups.items()}
    found = {name: value for name, value in found.items() if value is not None}
    order = sorted(found, key=found.get)
    axes.plot([found[name] for name in order], range(len(order)), "o", color="C0")
    if found:
        axes.axvline(1.1, color="C3", linewidth=0.8)
    axes.set_yticks(range(len(order)), order, fontsize=7)
