// What happened to the model: refits with their outcome, and changes of the world.

import { helped } from '/adoption.js';
import { $, el, list, say } from '/dom.js';
import { critic, known, plain } from '/known.js';
import { lengthscale } from '/kernel.js';
import { format, grouped } from '/words.js';

/** @type {Record<string, string>} */
const KINDS = {
  adopted: 'adopted',
  swapped: 'adopted',
  returned: 'adopted',
  refit_rejected: 'rejected',
  drift: 'drift',
  new_policy: 'drift',
};
export const kindOf = (/** @type {import('./types').Mark} */ mark) => KINDS[mark.event] ?? 'other';
const SHOWN_EVENTS = [
  'adopted',
  'refit_rejected',
  'drift',
  'forked',
  'swapped',
  'returned',
  'dismissed',
  'new_policy',
  'removed',
  'rebuilt',
  'dictionary_full',
  'critic_failed',
  'checkpoint',
];

/** Marks of a critic, by default the chosen one, oldest first. */
export function marks(name = critic()?.name) {
  return [...known.marks.values()].filter((m) => SHOWN_EVENTS.includes(m.event) && (m.critic ?? name) === name);
}

/** @type {Record<string, string>} */
const TRIGGERS = {
  rows: 'enough new rows',
  score_drop: 'predictions got worse',
  dictionary_full: 'the dictionary was full',
  requested: 'asked for',
};

export function title(/** @type {import('./types').Mark} */ mark) {
  if (mark.event === 'adopted') return `Generation ${mark.generation} adopted`;
  if (mark.event === 'refit_rejected') return `Generation ${mark.generation} stays`;
  if (mark.event === 'drift') return 'The world has changed';
  if (mark.event === 'forked') return 'A second model learns the rows since';
  if (mark.event === 'swapped') return `Generation ${mark.generation}: the second model has taken over`;
  if (mark.event === 'returned') return `Generation ${mark.generation}: a kept model has taken over again`;
  if (mark.event === 'dismissed') return 'The second model predicts no better';
  if (mark.event === 'new_policy') return `Another policy acts${mark.policy ? `: ${mark.policy}` : ''}`;
  if (mark.event === 'removed') return `${grouped(mark.rows ?? 0)} rows were taken back${mark.by ? ` by ${mark.by}` : ''}`;
  if (mark.event === 'rebuilt') return `Generation ${mark.generation}: learned again from the journal`;
  if (mark.event === 'dictionary_full') return `The dictionary is full with ${mark.size} states`;
  return mark.event.replaceAll('_', ' ');
}

/** "ard, matern52": form and profile. */
export const kernelName = (/** @type {import('./status').KernelStatus} */ { kind, profile }) => `${kind}, ${profile ?? 'gaussian'}`;

/** What an adoption changed in the kernel: "angle 0.42 → 0.38, noise std 0.31 → 0.28". */
export function changes(/** @type {any} */ { kernel_before: before, kernel_after: after }) {
  if (!before || !after) return null;
  /** @type {[string, number, number][]} */
  const pairs = after.scale
    .map((/** @type {number} */ _, /** @type {number} */ k) => [`lengthscale of ${plain(k)}`, lengthscale(before, k), lengthscale(after, k)])
    .filter((/** @type {any[]} */ [, from, to]) => from !== null && to !== null);
  pairs.push(['noise std', Math.sqrt(before.noise.variance), Math.sqrt(after.noise.variance)]);
  pairs.push(['signal std', Math.sqrt(before.kernel.signal_variance), Math.sqrt(after.kernel.signal_variance)]);
  const short = (/** @type {number} */ v) => (v > 1e4 ? '∞' : format(v, 3));
  const moved = pairs
    .filter(([, a, b]) => Math.abs(Math.log(b / a)) > 0.05 && short(a) !== short(b))
    .slice(0, 6)
    .map(([name, a, b]) => `${name} ${short(a)} → ${short(b)}`);
  const [from, to] = [kernelName(before.kernel), kernelName(after.kernel)];
  if (from !== to) moved.unshift(`kernel ${from} → ${to}`);
  moved.push(`dictionary ${before.dictionary_size} → ${after.dictionary_size}`);
  return moved.join(', ');
}

/** How held-out returns chose: what other lambdas lose, the kernels compared, and why the present choice stayed or went. */
function selection(/** @type {any} */ { selection: s, trial: t }) {
  if (!s) return [];
  const loss = (/** @type {import('./status').LambdaFound} */ { lambda, score }) => `${lambda} ${score === 1 ? 'best' : `+${format(100 * (score - 1), 2)} %`}`;
  const kernels = s.candidates.map((/** @type {any} */ c) => `${c.name} ${format(c.score, 4)} (λ ${c.lambda}, ${c.elements} states)`);
  const present =
    typeof s.gain === 'number'
      ? `the current kernel, λ and ridge ${s.present_stays ? 'stay' : 'were beaten'}: the best error is lower by ` +
        `${format(s.gain, 2)}, with a standard error of ${format(s.standard_error, 2)}`
      : null;
  const tried = t
    ? `on the last ${grouped(t.rows)} rows, which chose neither model, the new one errs ${t.gain < 0 ? 'more' : 'less'} by ${format(Math.abs(t.gain), 2)}, ` +
      `with a standard error of ${format(t.standard_error, 2)}`
    : null;
  return [`λ ${s.lambdas.map(loss).join(', ')}`, `held-out errors: ${kernels.join(', ')}`, present, tried];
}

/** Whether an adoption helped, in words; null before that is known. */
export function effect(/** @type {import('./types').Mark} */ mark) {
  const found = helped(mark.generation);
  return found && `${found.numbers}: ${found.verdict}`;
}

export function gain(/** @type {import('./types').Mark} */ mark) {
  if (typeof mark.evidence_after !== 'number' || typeof mark.evidence_before !== 'number') return null;
  const nats = mark.evidence_after - mark.evidence_before;
  const className = mark.event !== 'adopted' ? 'hint' : nats >= 0 ? 'gain' : 'loss';
  return el('span', { className, textContent: `${nats >= 0 ? '+' : ''}${format(nats, 3)} nats` });
}

/** What a mark changed, or why it did not; how it came about; what was found on the way. @param {import('./types').Mark} mark @returns {string[]} */
function linesOf(mark) {
  /** @type {any[]} */
  const lines = [mark.unlike ?? changes(mark) ?? mark.reason];
  if (mark.trigger) {
    const parts = [
      TRIGGERS[mark.trigger] ?? mark.trigger,
      mark.heads ? `evidence of ${grouped(mark.heads)} heads` : null,
      mark.selection ? `held-out returns of ${grouped(mark.selection.rows)} rows` : `evidence on ${grouped(mark.evidence_rows)} rows`,
      `${grouped(mark.evaluations)} evaluations`,
      `${format(mark.seconds, 2)} s${mark.out_of_time ? ', its budget ended' : ''}`,
    ];
    if (mark.active_bounds?.length) parts.push(`at a bound: ${mark.active_bounds.join(', ')}`);
    if (mark.rows_left_out) parts.push(`${grouped(mark.rows_left_out)} rows left out`);
    lines.push(parts.filter(Boolean).join(' · '), ...selection(mark));
  }
  if (kindOf(mark) === 'adopted') lines.push(effect(mark));
  if (mark.event === 'adopted') lines.push((mark.findings ?? []).join(' · '));
  return lines.filter(Boolean);
}

/** "14:02:07" @param {Date} when */
const clock = (when) => when.toLocaleTimeString([], { hour12: false });

/** The marks in words, newest first, for a picture. */
export const markRows = () =>
  marks()
    .reverse()
    .map((mark) => ({
      words: [[title(mark), gain(mark)?.textContent, clock(new Date(1000 * mark.time))].filter(Boolean).join(' · '), ...linesOf(mark)],
    }));

/** "3 events; the newest, at 14:02:07: generation 3 adopted, it has helped." */
function markSentence() {
  const all = marks();
  const last = all.at(-1);
  if (!last) return 'No model has been selected yet.';
  const verdict = kindOf(last) === 'adopted' ? helped(last.generation)?.verdict : null;
  const words = `${title(last)}${verdict ? `, ${verdict}` : ''}`;
  return `${all.length === 1 ? '1 event' : `${grouped(all.length)} events`}; the newest, at ${clock(new Date(1000 * last.time))}: ${words[0].toLowerCase()}${words.slice(1)}.`;
}

export function markList() {
  say($('marks-plain'), markSentence());
  const items = marks()
    .reverse()
    .map((mark) => {
      const when = new Date(1000 * mark.time);
      return el(
        'li',
        { data: { kind: kindOf(mark), number: mark.number } },
        el('i', { 'aria-hidden': 'true' }),
        el('span', {}, el('b', { textContent: title(mark) }), ' ', gain(mark)),
        el('time', { dateTime: when.toISOString(), textContent: clock(when) }),
        ...linesOf(mark).map((words) => el('span', { className: 'details', textContent: words })),
      );
    });
  list(
    $('marks'),
    items.length
      ? items
      : [
          el('li', {
            className: 'empty-row',
            textContent:
              'No refit has selected a model yet. The first one is due after refit_first_rows rows. To start it ' +
                'now: criticd refit',
          }),
        ],
  );
}

/** The marks as columns; null before there is one. */
export function markColumns() {
  const all = marks();
  if (!all.length) return null;
  const of = (/** @type {(mark: any) => any} */ read) => all.map((mark) => read(mark) ?? null);
  return {
    time: of(({ time }) => new Date(1000 * time).toISOString()),
    event: of(({ event }) => event),
    generation: of(({ generation }) => generation),
    trigger: of(({ trigger }) => trigger),
    changes: of((mark) => mark.unlike ?? changes(mark) ?? mark.reason),
    effect: of((mark) => (kindOf(mark) === 'adopted' ? effect(mark) : null)),
  };
}

/** What was said of the model in use when it was adopted; the last selection may have been of another one. */
export function adoption() {
  const { generation, refit } = critic();
  const said = marks().findLast((m) => m.event === 'adopted' && m.generation === generation);
  return said ?? (refit.last?.outcome === 'adopted' ? refit.last : null);
}
