// What the value is compared with: an earlier model, another critic, or what a simulator knows to be true.

import { $, el, list } from '/dom.js';
import { chosen, critic, known } from '/known.js';

/** Critics that can be chosen from a list at once. */
const CRITICS_LISTED = 200;

/** Earlier generations of the chosen critic, newest first. */
function earlier() {
  const all = known.kept.generations[chosen.critic] ?? [];
  return all.filter((generation) => generation !== critic()?.generation).reverse();
}

/**
 * What there is to compare with, as the values of a list have it, each with its words: "generation 3", "critic far", "truth".
 * @returns {[string, [string, string][]][]}
 */
function offers() {
  /** @type {any[]} */
  const critics = known.status?.critics ?? [];
  const others = critics.filter(({ name, kernel, actions }) => kernel && !actions && name !== critic()?.name);
  return [
    ['earlier models', earlier().map((generation) => [`generation ${generation}`, `generation ${generation}`])],
    // A simulator knows the value of its first reward alone.
    ['simulator', known.truth && chosen.head === 0 ? [['truth', 'what is true']] : []],
    ['other critics', others.slice(0, CRITICS_LISTED).map(({ name }) => [`critic ${name}`, name])],
  ];
}

/** Bring the list up to date; what is compared with and has gone is no longer compared with. */
export function againstChoices() {
  const groups = offers().filter(([, entries]) => entries.length);
  const option = ([value, words]) => el('option', { value, textContent: words });
  const select = $('against');
  list(select, [
    el('option', { value: '', textContent: 'nothing' }),
    ...groups.map(([label, entries]) => el('optgroup', { label }, ...entries.map(option))),
  ]);
  if (!groups.some(([, entries]) => entries.some(([value]) => value === chosen.against))) chosen.against = '';
  select.value = chosen.against;
  $('against-choice').hidden = !groups.length;
}

/** The question for the other picture, from that for the shown one; null where nothing is compared. @param {URLSearchParams} query */
export function againstQuery(query) {
  const [kind, ...rest] = chosen.against.split(' ');
  if (!kind) return null;
  const other = new URLSearchParams(query);
  if (kind === 'critic') other.set('critic', rest.join(' '));
  else other.set('of', kind === 'truth' ? 'truth' : rest[0]);
  if (kind === 'critic') other.set('head', '0');
  return other;
}

/** What is compared with, in words. */
export function againstWords() {
  if (chosen.against === 'truth') return 'what is true';
  return chosen.against.startsWith('critic ') ? chosen.against.slice(7) : chosen.against;
}

/**
 * Shown minus other at the cells of the shown field.
 * @param {import('/canvas.js').Field} shown
 * @param {import('/canvas.js').Field} other
 * @returns {Float32Array}
 */
export function difference(shown, other) {
  const { columns, rows, values } = shown;
  const place = (k) => [((k % columns) + 0.5) / columns, (Math.floor(k / columns) + 0.5) / rows];
  return Float32Array.from(values, (v, k) => v - other.at(place(k)[0], place(k)[1]));
}

/** Root mean square and largest size of a field at places (n, 2) or (n, 1) on these ranges; null without places. */
export function sizes(field, places, range) {
  const share = (v, [low, high]) => (v - low) / (high - low);
  const found = places.map(([x, y]) => field.at(share(x, range[0]), y === undefined ? 0 : share(y, range[1])));
  if (!found.length) return null;
  const square = found.reduce((sum, v) => sum + v * v, 0) / found.length;
  return { rms: Math.sqrt(square), most: Math.max(...found.map(Math.abs)) };
}
