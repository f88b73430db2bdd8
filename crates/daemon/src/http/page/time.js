// The numbers of the past: quality first, the machinery behind "details".

import { unverified } from '/actions.js';
import { $, el, remembered, say } from '/dom.js';
import { term } from '/glossary.js';
import { chosen, critic, known, ofHead, rewardUnit, series } from '/known.js';
import { timeAt, timeline } from '/lines.js';
import { changes, effect, gain, kindOf, marks, title } from '/marks.js';
import { bytes, duration, format } from '/words.js';

/** @type {[number, string][]} */
const SPANS = [
  [120, '2 min'],
  [600, '10 min'],
  [7200, '2 h'],
  [43200, '12 h'],
];
/** Rows per second below which none come: one in three hours. */
const SLOWEST = 1e-4;
/** What is shown over time; `main` says whether a reader needs it to trust the model, `ofReward` that its unit is the reward's; `word` is its key in the glossary. @type {any[]} */
const LINES = [
  {
    title: 'Error',
    hint: 'root mean square of return minus prediction, over the last 100 returns',
    ofReward: true,
    main: true,
    zero: true,
    wanted: () => !unverified(),
    of: () => [{ values: series(ofHead('error')), colour: 'accent' }],
  },
  {
    title: 'Bias',
    word: 'bias',
    hint: 'mean of return minus prediction; above zero the values are too low',
    ofReward: true,
    main: true,
    limit: () => 0,
    around: true,
    wanted: () => !unverified(),
    of: () => [{ values: series(ofHead('bias')), colour: 'accent' }],
  },
  {
    title: 'Returns in their 90 % interval',
    word: 'coverage',
    hint: 'of the last 100; the grey line is 90 %',
    unit: '%',
    main: true,
    limit: () => 90,
    around: true,
    wanted: () => !unverified(),
    of: () => [{ values: series(ofHead('coverage')).map((v) => (v === null ? null : 100 * v)), colour: 'accent' }],
  },
  {
    title: 'Log evidence',
    word: 'evidence',
    unit: 'nats',
    // Where held-out returns select there is none, and their error is shown in its place.
    wanted: () => series('log_evidence').some((v) => v !== null),
    of: () => [{ values: series('log_evidence'), colour: 'accent' }],
  },
  {
    title: 'Held-out error',
    word: 'heldout',
    hint: 'of the model in use, at its selection; 1 is the error of a constant',
    unit: '',
    zero: true,
    wanted: () => series('held_out_error').some((v) => v !== null),
    of: () => [{ values: series('held_out_error'), colour: 'accent' }],
  },
  {
    title: 'Log score',
    word: 'score',
    hint: 'recent average, and since the adoption (dashed)',
    unit: 'nats/row',
    of: () => [
      { values: series('score'), colour: 'soft', thin: true, name: 'since the adoption' },
      { values: series('score_recent'), colour: 'accent', name: 'recent' },
    ],
  },
  {
    title: 'Dictionary',
    word: 'dictionary',
    hint: 'grey: the most it may hold',
    unit: 'states',
    zero: true,
    limit: () => critic()?.dictionary_max,
    of: () => [{ values: series('dictionary_size'), colour: 'accent' }],
  },
  { title: 'Running chains', word: 'chain', unit: '', zero: true, of: () => [{ values: series('running_chains'), colour: 'accent' }] },
  {
    title: 'Rows per second',
    main: true,
    unit: '',
    zero: true,
    // What is left of a mean that fades is no rate.
    of: () => [{ values: known.history.rows_per_second.map((v) => v && (v < SLOWEST ? 0 : v)), colour: 'accent' }],
  },
  { title: 'Rows taken in', unit: '', zero: true, of: () => [{ values: known.history.offset, colour: 'accent' }] },
  {
    title: 'Messages waiting',
    hint: 'on ingest, and calls (dashed)',
    unit: '',
    zero: true,
    of: () => [
      { values: known.history.queue_calls, colour: 'second', thin: true, name: 'calls' },
      { values: known.history.queue_ingest, colour: 'accent', name: 'ingest' },
    ],
  },
  {
    title: 'Memory',
    hint: 'of the process, and of the rows kept (dashed)',
    unit: 'bytes',
    zero: true,
    mebibytes: true,
    of: () => [
      { values: known.history.window_bytes, colour: 'soft', thin: true, name: 'rows kept' },
      { values: known.history.resident_bytes, colour: 'accent', name: 'process' },
    ],
  },
];
/** The time under the pointer. @type {?number} */
let pointed = null;

/** The time lines, once. */
export function buildLines() {
  $('spans').replaceChildren(
    ...SPANS.map(([seconds, words]) => {
      const button = el('button', {
        type: 'button',
        textContent: words,
        'aria-pressed': String(seconds === chosen.span),
      });
      button.addEventListener('click', () => {
        chosen.span = seconds;
        remembered.set('span', seconds);
        for (const [k, [each]] of SPANS.entries())
          $('spans').children[k].setAttribute('aria-pressed', String(each === seconds));
        timelines();
      });
      return button;
    }),
  );
  for (const line of LINES) {
      line.value = el('b');
      const label = [line.title, line.hint].filter(Boolean).join(', ');
      line.canvas = el('canvas', {
        className: 'plot',
        tabIndex: 0,
        role: 'img',
        'aria-label': label,
        title: line.hint ?? '',
      });
      const point = (/** @type {?number} */ offset) => {
        pointed = offset === null ? null : timeAt(line.canvas, offset, spanNow());
        timelines();
      };
      line.canvas.addEventListener('pointermove', (/** @type {PointerEvent} */ e) => point(e.offsetX));
      line.canvas.addEventListener('pointerdown', (/** @type {PointerEvent} */ e) => point(e.offsetX));
      line.canvas.addEventListener('pointerleave', () => point(null));
      line.canvas.addEventListener('blur', () => point(null));
      line.canvas.addEventListener('keydown', (/** @type {KeyboardEvent} */ e) => {
        const by = e.key === 'ArrowLeft' ? -1 : e.key === 'ArrowRight' ? 1 : 0;
        if (!by) return;
        e.preventDefault();
        const [from, to] = spanNow();
        pointed = Math.min(Math.max((pointed ?? to) + (by * chosen.span) / 60, from), to);
        timelines();
      });
      new ResizeObserver(() => timelines()).observe(line.canvas);
      line.card = el('div', { className: 'card line' }, el('h3', {}, line.word ? term(line.word, line.title) : line.title, line.value), line.canvas);
    line.card.hidden = Boolean(line.wanted);
    $(line.main ? 'lines' : 'lines-more').append(line.card);
  }
  $('time-more', HTMLDetailsElement).addEventListener('toggle', timelines);
}

/**
 * From when to when is shown: the whole span, or as long as there is something to show, but at least a minute.
 * @returns {[number, number]}
 */
function spanNow() {
  const to = known.history.time?.at(-1) ?? 0;
  const oldest = known.history.time?.[0] ?? to;
  return [Math.max(to - chosen.span, Math.min(oldest, to - 60)), to];
}

let timelinePending = 0;

const isShown = (/** @type {any} */ line) => !line.card.hidden && (line.main || $('time-more', HTMLDetailsElement).open);

function drawLine(/** @type {any} */ line) {
  const span = spanNow();
  const shown = marks()
    .filter((m) => kindOf(m) !== 'other')
    .map((m) => ({ time: m.time, kind: kindOf(m) }));
  const inMebibytes = (/** @type {?number} */ v) => (v === null ? null : v / 1048576);
  const lines = line.of().map((/** @type {any} */ each) => (line.mebibytes ? { ...each, values: each.values.map(inMebibytes) } : each));
  const { canvas, zero, around } = line;
  const at = pointed !== null && pointed >= span[0] ? pointed : null;
  const times = /** @type {number[]} */ (known.history.time);
  const key = `${critic()?.name} ${chosen.head} ${chosen.span}`;
  timeline(canvas, { lines, times, span, marks: shown, at, zero, limit: line.limit?.(), around, key });
}

/** The time lines that are shown, to be saved. */
export function timeParts() {
  return LINES.filter(isShown).map((line) => ({
    canvas: line.canvas,
    paint: () => drawLine(line),
    title: [`${line.title} ${line.value.textContent}`],
  }));
}

/** The numbers over time of the chosen critic, and of the daemon, over the time that is shown. */
export function timeColumns() {
  const own = `${critic()?.name}.`;
  const [from] = spanNow();
  const times = known.history.time ?? [];
  const first = Math.max(0, times.findIndex((t) => t !== null && t >= from));
  const names = known.columns.filter((name) => !name.includes('.'));
  // A critic's name may have dots itself, its series have none.
  const isOwn = (/** @type {string} */ name) => name.startsWith(own) && !name.slice(own.length).includes('.');
  const ofCritic = known.columns.filter(isOwn).map((name) => name.slice(own.length));
  return Object.fromEntries([
    ...names.map((name) => [name, known.history[name].slice(first)]),
    ...ofCritic.map((name) => [name, series(name).slice(first)]),
  ]);
}

/** Draw them as they are now. */
export function timelines() {
  timelinePending ||= requestAnimationFrame(() => {
    timelinePending = 0;
    if (!known.columns.length || $('time').hidden) return;
    const times = /** @type {number[]} */ (known.history.time);
    const span = spanNow();
    const at = pointed !== null && pointed >= span[0] ? pointed : null;
    let k = times.length - 1;
    if (at !== null) while (k > 0 && times[k] > at) k -= 1;
    for (const line of LINES) {
      if (line.wanted) line.card.hidden = !line.wanted();
      if (!isShown(line)) continue;
      drawLine(line);
      const value = line.of().at(-1).values[k] ?? null;
      say(line.value, line.mebibytes ? bytes(value ?? NaN) : `${format(value)} ${line.ofReward ? rewardUnit() : line.unit}`);
    }
    const near =
      at === null
        ? null
        : marks()
            .filter((m) => Math.abs(m.time - at) < (span[1] - span[0]) / 80)
            .at(-1);
    const ago = at === null ? '' : `${duration(span[1] - at)} ago`;
    $('time-out').replaceChildren(
      ...(at === null
        ? []
        : [
            ago,
            ...(near
              ? [
                  ': ',
                  el('b', { textContent: title(near) }),
                  ' ',
                  gain(near),
                  ` ${(kindOf(near) === 'adopted' && effect(near)) || near.reason || changes(near) || ''}`,
                ].filter((x) => x !== null)
              : []),
          ]),
    );
  });
}
