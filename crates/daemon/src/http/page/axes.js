// Which variables are shown, and where the others stand.

import { ofActions } from '/actions.js';
import { $, el, remembered, say } from '/dom.js';
import { axesNow, chosen, critic, dim, inUnit, known, plain, variable } from '/known.js';
import { ranked, shares, withoutShares } from '/relevance.js';
import { format, round } from '/words.js';

/** Called when the reader has chosen something else to see. */
let changed = () => {};

/** What there is to choose from, when a daemon is met or the critic changes. @param {() => void} seeing */
export function choices(seeing) {
  const critics = known.status?.critics ?? [];
  if (chosen.critic >= critics.length) chosen.critic = 0;
  $('critic', HTMLSelectElement).replaceChildren(...critics.map(({ name }, k) => el('option', { value: k, textContent: name })));
  $('critic', HTMLSelectElement).value = String(chosen.critic);
  Object.assign(chosen, { x: null, y: null, head: 0, named: null, earlier: null, then: null, at: {}, part: null, plan: null, course: null });
  ranges.clear();
  chosenBy = -1;
  changed = seeing;
}

/** The generation whose shares chose the axes. */
let chosenBy = -1;

/** Axes and sliders, once there is a model: those chosen before, or the two variables on which most of the value hangs. */
export function axes() {
  const { name, kernel, generation } = critic();
  if (!kernel || !known.states?.median.length) return;
  const kept = remembered.get(`axes.${name}.${dim()}`);
  const own = kept?.every((/** @type {number} */ k) => k === null || k < dim());
  if (chosen.x !== null && (own || !shares() || chosenBy === generation)) return;
  if (!own && dim() > 2 && !shares() && !withoutShares()) return;
  if (ofActions()) chosen.average = false;
  const best = ranked().slice(0, 2);
  const [x, y] = own ? kept : best.sort((i, j) => i - j);
  chosenBy = shares() ? generation : -1;
  if (x === chosen.x && y === chosen.y) return;
  chosen.x = x;
  chosen.y = dim() > 1 ? (y ?? null) : null;
  for (const id of ['axis-x', 'axis-y']) {
    /** @type {any[]} */
    const options = Array.from({ length: dim() }, (_, k) => el('option', { value: k, textContent: variable(k) }));
    if (id === 'axis-y') options.push(el('option', { value: '', textContent: 'nothing: a curve' }));
    $(id).replaceChildren(...options);
  }
  $('axis-x').parentElement.hidden = dim() < 2;
  $('swap', HTMLButtonElement).hidden = dim() < 2;
  $('axis-y-label').hidden = dim() < 2;
  medians();
}

/** Put all variables where most states are: at their medians. */
export function medians() {
  chosen.at = {};
  known.states.median.forEach((/** @type {number} */ v, /** @type {number} */ k) => {
    chosen.at[k] = v;
  });
  sliders();
}

/** Show these variables; a curve without y. @param {?number} x @param {?number} y */
export function chooseAxes(x, y) {
  Object.assign(chosen, { x, y, part: null });
  $('whole', HTMLButtonElement).hidden = true;
  remembered.set(`axes.${critic().name}.${dim()}`, [x, y]);
  sliders();
  changed();
}

/** Let the other variables stand at one place, or average over them. @param {boolean} average */
export function averageOthers(average) {
  chosen.average = average;
  $('mode', HTMLSelectElement).value = average ? 'average' : 'slice';
  sliders();
  changed();
}

/** Put all variables where a state has them. @param {number[]} state */
export function standAt(state) {
  state.forEach((v, k) => {
    chosen.at[k] = v;
  });
  sliders();
  changed();
}

/** The variables that are on neither axis, the most relevant first. */
const fixed = () => ranked().filter((k) => !axesNow().includes(k));

/** The shown slice in words: where the variables stand that are on neither axis; of many the first, at most `most`. */
export function sliceWords(most = SLICE) {
  const others = fixed();
  if (!others.length) return '';
  const named = others.slice(0, most);
  const more = others.length - named.length;
  if (chosen.average) return `averaged over ${named.map(plain).join(', ')}${more > 0 ? ` and ${more} more` : ''}, as visited`;
  const shown = named.map((k) => `${plain(k)} = ${inUnit(k, format(chosen.at[k], 3))}`);
  return `at ${shown.join(', ')}${more > 0 ? ` and ${more} more as set below` : ''}`;
}

/** Where each of these variables stands, as columns of `rows` rows; empty where the value is averaged over them. @param {number} rows @returns {Record<string, number[]>} */
export const fixedColumns = (rows) =>
  chosen.average ? {} : Object.fromEntries(fixed().map((k) => [variable(k), Array(rows).fill(chosen.at[k])]));

/** Variables that the words of a slice name, and those with a slider. */
const SLICE = 6;
const SLIDERS = 12;

/** Find others by name, once. */
export function buildSliders() {
  $('sliders-find').addEventListener('input', sliders);
}

/** A slider for each of the most relevant variables that are on neither axis; of many, for those whose names contain the search text. */
function sliders() {
  $('axis-x', HTMLSelectElement).value = String(chosen.x);
  $('axis-y', HTMLSelectElement).value = String(chosen.y ?? '');
  $('swap', HTMLButtonElement).disabled = chosen.y === null;
  const all = fixed();
  $('sliders-search').hidden = all.length <= SLIDERS;
  const wanted = $('sliders-search').hidden ? '' : $('sliders-find', HTMLInputElement).value.trim().toLowerCase();
  const found = all.filter((k) => variable(k).toLowerCase().includes(wanted));
  say($('sliders-found'), `${Math.min(found.length, SLIDERS)} of ${found.length}${wanted ? ' found' : ''}`);
  const others = found.slice(0, SLIDERS);
  $('mode-choice').hidden = all.length === 0 || ofActions();
  $('others', HTMLDetailsElement).hidden = all.length === 0 || chosen.average;
  const summary = () =>
    say($('others-summary'), all.slice(0, SLIDERS).map((k) => `${plain(k)} ${inUnit(k, format(chosen.at[k], 3))}`).join(', '));
  $('sliders').replaceChildren(
    ...others.map((k) => {
      const [low, high] = wholeOf(k);
      const out = el('output', { textContent: inUnit(k, format(chosen.at[k], 3)) });
      const input = el('input', { type: 'range', min: low, max: high, step: (high - low) / 200, value: chosen.at[k] });
      input.addEventListener('input', () => {
        chosen.at[k] = Number(input.value);
        say(out, inUnit(k, format(chosen.at[k], 3)));
        summary();
        changed();
      });
      return el('label', {}, plain(k), out, input);
    }),
  );
  summary();
}

const ranges = new Map();

/** Show a part of each axis: [[x0, x1], [y0, y1]]; the whole of both without one. @param {?number[][]} part */
export function zoom(part) {
  chosen.part = part;
  $('whole', HTMLButtonElement).hidden = !part;
  changed();
}

/** From where to where a variable is shown. @param {number} k @returns {number[]} */
export const rangeOf = (k) => chosen.part?.[axesNow().indexOf(k)] ?? wholeOf(k);

/** Round numbers around what was visited, which only ever widen. */
export function wholeOf(/** @type {number} */ k) {
  const [low, high] = [known.states.low[k], known.states.high[k]];
  const now = ranges.get(k);
  if (now && now[0] <= low && high <= now[1]) return now;
  const margin = 0.02 * (high - low);
  const wanted = [Math.min(low - margin, now?.[0] ?? Infinity), Math.max(high + margin, now?.[1] ?? -Infinity)];
  ranges.set(k, round(wanted, 30));
  return ranges.get(k);
}
