"""What the page says of a model by itself is said where it is true and kept back where it is not: planted in what it knows.

The line of trust, findings and reasons come in words from the daemon; `crates/daemon/src/monitor/trust.rs` and `test_sentences.py` look at those.
"""

from __future__ import annotations

import re

import browser
import pytest
from browser import Browser
from client import ROOT
from conftest import Start
from dashboard import Walk, address, history, learned, start_walk
from screenshots import DEAF, refit

PAGE = ROOT / "crates" / "daemon" / "src" / "http" / "page"
# What has been answered about errors is kept, to be changed.
KEPT = """const read = Response.prototype.json; Response.prototype.json = async function () {
    const found = await read.call(this); if (found.worst) (window.worst = found.worst).error.chance = false; return found; };"""
# `plant` changes what the page knows and what it has been answered; all is drawn with it, and again without it.
SAID = """(async (plant) => {
    const { known, chosen } = await import('/known.js');
    const kept = structuredClone([known, chosen, worst]);
    const draw = () => {
        document.getElementById('theme').click();
        const shown = document.body.cloneNode(true);
        for (const each of shown.querySelectorAll('[hidden]')) each.remove();
        return shown.textContent;
    };
    plant(known.status.critics[0], known, chosen);
    const planted = draw();
    Object.assign(known, kept[0]); Object.assign(chosen, kept[1]); Object.assign(worst, kept[2]);
    return [planted, draw()];
})"""
VERDICT = "known.calibration[0][0].generations = [[1, 90, 0.6, 0, 0.8, null], [2, 90, 0.4, 0, 0.9, %s]]"
MARK = "known.marks.set(900, { number: 900, event: '%s', critic: c.name, time: 0, generation: 7, %s })"
SELECTED = "trigger: 'rows', evidence_rows: 9, evaluations: 9, seconds: 1, %s"
RETURNS = "selection: { rows: 90, lambdas: [], candidates: [], gain: 0.1, standard_error: 0.2, present_stays: %s }"
ALARM = "c.alarms = [{ below: 4, streams: [], on: 0, missing: 0, raised: 9, hits: 6, mistaken: 3, fell: 8, stayed: 80, missed: 2, %s }]"
HEADS = "c.heads = { count: 3, verified: 3, worst: [{ name: 'far', coverage: 0.62, pairs: 120, bias: 0.3 }] }"
CAME = """Object.assign(known.calibration[0][0], { pairs: Array(80).fill([-2, -1, 1, 5, 2]),
    summary: { count: 80, within_90: 0.91, correlation: 0.9, bias: 1, rms: 1 } })"""
QUIET = """const { known } = await import('/known.js'); window.frozen = true;
    Object.assign(known.calibration[0][0], { generations: [], pairs: [] });"""

# Another name is another critic's, of which no picture is drawn.
FAILED = "Object.assign(c, { name: 'walk', failed: 'it panicked', kernel: null })"
NONE = "known.status.offset = %s; Object.assign(c, { name: 'walk', kernel: null, warmup_rows: 32 })"

# Words, and what makes them true: of the critic c, what is known, and what the reader has chosen.
PLANTED = [
    (
        "error 0.4 since, 0.6 before; 90 % of returns in their 90 % interval since, 80 % before: it has helped",
        VERDICT % 1,
    ),
    ("it has made them worse", VERDICT % -1),
    ("no clear difference", VERDICT % 0),
    ("No model has been selected yet.", "known.marks.clear()"),
    ("No refit has selected a model yet. The first one is due after refit_first_rows rows.", "known.marks.clear()"),
    ("Generation 7 adopted", MARK % ("adopted", "")),
    ("Generation 7 stays", MARK % ("refit_rejected", "")),
    ("The world has changed", MARK % ("drift", "")),
    ("rewards and values are lower", MARK % ("drift", "unlike: 'rewards and values are lower'")),
    ("A second model learns the rows since", MARK % ("forked", "")),
    ("Generation 7: the second model has taken over", MARK % ("swapped", "")),
    ("Generation 7: a kept model has taken over again", MARK % ("returned", "")),
    ("The second model predicts no better", MARK % ("dismissed", "")),
    ("Another policy acts: soft", MARK % ("new_policy", "policy: 'soft'")),
    ("12 rows were taken back by us", MARK % ("removed", "rows: 12, by: 'us'")),
    ("Generation 7: learned again from the journal", MARK % ("rebuilt", "")),
    ("The dictionary is full with 61 states", MARK % ("dictionary_full", "size: 61")),
    ("enough new rows", MARK % ("adopted", SELECTED % "")),
    (
        "predictions got worse",
        MARK % ("adopted", "trigger: 'score_drop', evidence_rows: 9, evaluations: 9, seconds: 1"),
    ),
    (
        "the dictionary was full",
        MARK % ("adopted", "trigger: 'dictionary_full', evidence_rows: 9, evaluations: 9, seconds: 1"),
    ),
    ("1 s, its budget ended", MARK % ("adopted", SELECTED % "out_of_time: true")),
    ("at a bound: noise", MARK % ("adopted", SELECTED % "active_bounds: ['noise']")),
    ("33 rows left out", MARK % ("adopted", SELECTED % "rows_left_out: 33")),
    ("evidence of 3 heads", MARK % ("adopted", SELECTED % "heads: 3")),
    ("held-out returns of 90 rows", MARK % ("adopted", SELECTED % (RETURNS % "true"))),
    ("the current kernel, λ and ridge stay: the best error", MARK % ("adopted", SELECTED % (RETURNS % "true"))),
    (
        "the current kernel, λ and ridge were beaten: the best error is lower by 0.1",
        MARK % ("adopted", SELECTED % (RETURNS % "false")),
    ),
    (
        "on the last 70 rows, which chose neither model, the new one errs less by 0.1, with a standard error of 0.2",
        MARK % ("adopted", SELECTED % (RETURNS % "true" + ", trial: { rows: 70, gain: 0.1, standard_error: 0.2 }")),
    ),
    (
        "the new one errs more by 0.1, with a standard error of 0.2",
        MARK
        % ("refit_rejected", SELECTED % (RETURNS % "false" + ", trial: { rows: 70, gain: -0.1, standard_error: 0.2 }")),
    ),
    ("it erred more", MARK % ("refit_rejected", "reason: 'it erred more'")),
    (
        "a model is there only of the rows since",
        MARK % ("adopted", SELECTED % "findings: ['a model is there only of the rows since']"),
    ),
    ("A model is being selected", "c.refit.running = true"),
    ("A model is being selected, 43 % of its budget spent", "Object.assign(c.refit, { running: true, spent: 0.43 })"),
    ("A model is due to be selected, and waits for its turn.", "c.refit.next_at = 0"),
    ("The next model is selected after 5 more rows", "c.refit.next_at = known.status.offset + 5"),
    ("; the daemon does not answer. It last said: ", "known.lost = 0"),
    ("std × 1.5 not verified yet", "c.returns = { factor: 1.5, pairs: 0 }"),
    (
        "from 431 verified pairs; 82 % in the 90 % interval before the correction",
        "c.returns = { factor: 1, pairs: 431, coverage: 0.82 }",
    ),
    ("half-life of 500 rows 83 % of what it adds is let in", "c.drift.tracking = { gate: [0.83], half_life: [500] }"),
    ("no such head declare it, or mend alarm in the settings", ALARM % "unknown: true"),
    ("not yet return below 4; 3 more at or above it must come first; 8 of 88 were below", ALARM % "missing: 3"),
    ("return below 4 · 9 raised · 6 of 9 right", ALARM % ""),
    ("12 rows (2 s) ahead", ALARM % "lead_rows: 12, lead_s: 2"),
    ("2 of 8 low returns missed", ALARM % ""),
    ("on before 7 % of the other returns, 5 % asked for", ALARM % "false_share: 0.07, false_alarms: 0.05"),
    ("on: arm and 1 more", ALARM % "on: 2, streams: ['arm']"),
    ("; it remembers 60 states, its limit.", "c.dictionary_size = c.dictionary_max"),
    ("Where no row has been, the value goes on as a line along speed.", "c.kernel.columns = ['', 'linear:1']"),
    ("as a line along speed, up to four deviations from the mean.", "c.kernel.columns = ['', 'bounded:1']"),
    ("The largest mean errors are below four standard errors. Each is a mean over", "worst.error.chance = true"),
    ("Nowhere more than chance.", "worst.error.chance = true"),
    ("Over all states the reward and next value are off by", "chosen.error = 'td'"),
    (
        "62 % of 120 returns in the 90 % interval as it was predicted · bias 0.3",
        HEADS,
    ),
    ("Returns are known of 3 heads. The intervals of these hold worst:", HEADS),
    ("91 % of the last 80 returns lie within the 90 % interval", CAME),
    ("The critic walk has failed", FAILED),
    ("It has stopped learning: it panicked. The other critics continue.", FAILED),
    ("No rows yet", NONE % "0"),
    ("5 of 32 rows", NONE % "5"),
    ("The first model appears after 32 rows (warmup_rows).", NONE % "5"),
    ("Until then values of states are provisional, of the rows so far.", NONE % "5"),
    ("1 message was refused.", "known.status.rejected = { not_finite: 1 }"),
    ("2 messages were refused.", "known.status.rejected = { not_finite: 2 }"),
    ("idle streams", "known.status.streams = 9"),
    ("No stream yet.", "known.status.recent_streams = {}"),
    ("repeats after", "c.kernel.kinds = ['real', 'periodic:3']"),
]
# Words that what makes others true takes back.
TAKEN_BACK = [
    ("too few returns since to say whether it helped", VERDICT % 1),
    ("A predicted value against the return that followed appears when an episode terminates", CAME),
    ("No message was refused.", "known.status.rejected = { not_finite: 1 }"),
]

# Where a sentence is made, and what stands there that is none about a model: labels, units, definitions, ways to go on.
MADE = {
    "adoption.js": "",
    "calibration.js": "rows until",
    "cards.js": "nats|a constant|at most|stream|newest rows|message|the start|rows in the|it remembers",
    "compare.js": "the present model|models of|what is true",
    "course.js": "",
    "critics.js": "",
    "empty.js": "^Or |^export function|^const id|running daemon sends",
    "episodes.js": "of those shown",
    "errors.js": "is known|^reward and|mean over|neighbouring|standard errors leave|error of the",
    "heads.js": "least known",
    "listen.js": "daemon starts$",
    "marks.js": "the newest|To start it|criticd refit",
    "path.js": "the newest|cut off",
    "plan.js": "",
    "relevance.js": "not shown",
    "robots.js": "",
    "trust.js": "",
    "value.js": "present one|^of the|with one and two|dots|from$|the largest",
}
LITERAL = re.compile(r"'((?:\\.|[^'\\\n])*)'|`((?:\\.|[^`\\])*)`")
WORDS = re.compile(r"[A-Za-z][\w-]*(?:[,;:.]? [a-z][\w-]*){2,}")


def sentences(script: str) -> list[str]:
    """Runs of three words or more in the texts of a script, without what is filled in."""
    code = re.sub(r"/\*.*?\*/|(?<!:)//[^\n]*", "", script, flags=re.DOTALL)
    texts = (re.sub(r"\$\{[^}]*\}", "|", one or other) for one, other in LITERAL.findall(code))
    return [run for each in texts if "=>" not in each for run in WORDS.findall(each)]


@pytest.mark.skipif(browser.BINARY is None, reason="NOT TESTED: what the page says, since there is no chromium")
def test_what_is_true_of_a_model_is_said_and_nothing_else(start: Start, page: Browser) -> None:
    daemon = start_walk(start, dim=2)
    walk = Walk(daemon, 2)
    walk.send(400)
    learned(daemon, 400)
    refit(daemon, history(daemon)["status"]["critics"][0]["name"])
    page.call("Page.addScriptToEvaluateOnNewDocument", source=DEAF + KEPT)
    page.open(address(daemon))
    page.wait("document.querySelectorAll('#worst li').length > 0", "all of the page")
    wrong = []
    # What a run leaves to chance is not said in either case.
    page.run(f"(async () => {{ {QUIET} }})()")
    for k, (words, plant) in enumerate([*PLANTED, *TAKEN_BACK]):
        found = page.run(f"{SAID}((c, known, chosen) => {{ {plant}; }})")
        said = [words in each for each in found]
        if said != ([True, False] if k < len(PLANTED) else [False, True]):
            wrong.append(f"{words}: {said}")
    assert not wrong, "\n".join(wrong)


def test_every_sentence_of_the_page_about_a_model_has_its_truth() -> None:
    """Planted above, or looked for by another test of the page."""
    tests = " ".join(path.read_text() for path in ROOT.glob("tests/python/test_*.py"))
    unknown = []
    for name, other in MADE.items():
        for each in sentences((PAGE / name).read_text()):
            words = each.split()
            runs = (" ".join(words[k : k + 3]) for k in range(len(words) - 2))
            if not (other and re.search(other, each)) and not any(run in tests for run in runs):
                unknown.append(f"{name}: {each}")
    assert not unknown, "\n".join(unknown)
