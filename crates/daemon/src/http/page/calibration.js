// Predictions against the returns that came: each of them, by the size of what was predicted, and by the length of returns.

import { $, el, list, say } from '/dom.js';
import { compared, inReward, ofReward } from '/known.js';
import { listPart } from '/save.js';
import { Scatter } from '/scatter.js';
import { scaleOf } from '/value.js';
import { format, grouped } from '/words.js';

/** Deviations of a normal variable that hold nine tenths of it. */
export const NINETY = 1.644854;
/** Pairs of a group below which it says nothing. */
const GROUP_MIN = 8;

/** @typedef {import('/known.js').Pair} Pair */
/** @typedef {{from: number, to: number, predicted: number, count: number, bias: number, rms: number, within: number}} Group */

/** Error, bias and coverage of some pairs. @param {Pair[]} pairs */
export function quality(pairs) {
  const mean = (/** @type {(pair: Pair) => number} */ f) => pairs.reduce((sum, pair) => sum + f(pair), 0) / pairs.length;
  return {
    count: pairs.length,
    predicted: mean(([p]) => p),
    bias: mean(([p, r]) => r - p),
    rms: Math.sqrt(mean(([p, r]) => (r - p) ** 2)),
    within: mean(([p, r, s]) => Number(Math.abs(r - p) <= NINETY * s)),
  };
}

/**
 * The pairs in groups of equal size, in the order of `key`.
 * @param {Pair[]} pairs
 * @param {(pair: Pair) => number} key
 * @param {number} most
 * @returns {Group[]}
 */
export function groups(pairs, key, most) {
  const sorted = [...pairs].sort((a, b) => key(a) - key(b));
  const count = Math.min(most, Math.floor(sorted.length / GROUP_MIN));
  return Array.from({ length: count }, (_, k) => {
    const own = sorted.slice((k * sorted.length) / count, ((k + 1) * sorted.length) / count);
    return { from: key(own[0]), to: key(own[own.length - 1]), ...quality(own) };
  });
}

const scatter = new Scatter($('calibration'), (pair) => {
  $('calibration-out').replaceChildren(
    ...(pair
      ? [
          `predicted ${inReward(`${format(pair[0])} ± ${format(NINETY * pair[2], 3)}`)} (90 %): `,
          el('b', { textContent: `realised ${inReward(format(pair[1]))}` }),
        ]
      : []),
  );
});

/** Digits of the ends of a group. */
const DIGITS = 3;

/** What a table says of a group: from where to where, returns, bias, error, share in the interval. @param {Group} group @returns {string[]} */
function wordsOf({ from, to, count, bias, rms, within }) {
  const [first, last] = [format(from, DIGITS), format(to, DIGITS)];
  const span = first === last ? first : `${first} to ${last}`;
  return [span, grouped(count), `${bias > 0 ? '+' : ''}${format(bias, 2)}`, format(rms, 2), `${Math.round(100 * within)} %`];
}

/** Rows of a table of groups. @param {string} what @param {Group[]} found */
function table(what, found) {
  const head = [what, 'returns', ofReward('bias'), ofReward('error'), 'in 90 %'].map((words) => el('th', { textContent: words, scope: 'col' }));
  const rows = found.map((group) => el('tr', {}, ...wordsOf(group).map((words) => el('td', { textContent: words }))));
  return [el('tr', {}, ...head), ...rows];
}

/** The pairs in the groups of each table. @param {Pair[]} pairs @returns {{box: any, title: string, by: string, found: Group[]}[]} */
const tables = (pairs) => [
  { box: $('by-value'), title: ofReward('predicted'), by: 'predicted', found: groups(pairs, ([p]) => p, 10) },
  { box: $('by-length'), title: 'rows until known', by: 'rows', found: groups(pairs, (pair) => pair[3], 4) },
  { box: $('by-return'), title: ofReward('return'), by: 'return', found: groups(pairs, ([, r]) => r, 10) },
];

/** Show them. */
export function calibrationCard() {
  const { pairs, summary } = compared() ?? { pairs: [], summary: null };
  $('groups', HTMLDetailsElement).hidden = pairs.length < 2 * GROUP_MIN;
  $('calibration-legend').hidden = !pairs.length;
  $('calibration-save').hidden = !pairs.length;
  if (!pairs.length || !summary) {
    say(
      $('calibration-text'),
      'A predicted value against the return that followed appears when an episode terminates, or when later rewards hardly matter.',
    );
    $('calibration').hidden = true;
    return;
  }
  $('calibration').hidden = false;
  say(
    $('calibration-text'),
    `${format(100 * (summary.within_90 ?? NaN), 3)} % of the last ${summary.count} returns lie within the ` +
      `90 % interval · correlation ${format(summary.correlation, 3)} · bias ${inReward(format(summary.bias, 2))} · RMS error ` +
      inReward(format(summary.rms, 3)),
  );
  const all = pairs.flatMap(([p, r]) => [p, r]);
  const byGroup = tables(pairs);
  const means = byGroup[0].found.map(({ predicted, bias }) => [predicted, predicted + bias]);
  scatter.show({ pairs, means, range: scaleOf('calibration', [Math.min(...all), Math.max(...all)]) });
  $('calibration').setAttribute('aria-label', $('calibration-text').textContent);
  if ($('groups', HTMLDetailsElement).hidden) return;
  for (const { box, title, found } of byGroup) list(box, table(title, found));
}

/** The groups of the tables as columns; null before there are any. */
export function groupColumns() {
  const all = tables(compared()?.pairs ?? []).flatMap(({ by, found }) => found.map((group) => ({ by, ...group })));
  if (!all.length) return null;
  const of = (/** @type {'by' | 'from' | 'to' | 'count' | 'bias' | 'rms' | 'within'} */ key) => all.map((group) => group[key]);
  return { by: of('by'), from: of('from'), to: of('to'), count: of('count'), bias: of('bias'), error: of('rms'), within_90: of('within') };
}

/** Each table as a part of a picture. */
export function groupParts() {
  const rows = (/** @type {Group[]} */ found) => () =>
    found.map((group) => {
      const [span, count, bias, error, within] = wordsOf(group);
      return { words: [`${span}: ${count} returns · bias ${bias} · error ${error} · ${within} in their 90 % interval`] };
    });
  // The box of a table scrolls, so that its place does not depend on how far.
  return tables(compared()?.pairs ?? []).map(({ box, title, found }) => listPart(box.parentElement, `By ${title}`, rows(found)));
}

/** The pairs as columns. */
export function calibrationColumns() {
  const pairs = compared()?.pairs ?? [];
  const names = ['predicted', 'return', 'deviation', 'rows', 'generation'];
  return Object.fromEntries(names.map((name, k) => [name, pairs.map((pair) => pair[k])]));
}
