// Which model is shown, and what its value is compared with: an earlier model, another critic, or what a simulator knows to be true.

import { ofActions } from '/actions.js';
import { Field } from '/canvas.js';
import { $, el, list } from '/dom.js';
import { chosen, critic, inValue, known, withoutUnit } from '/known.js';
import { ofThen, thenChoice } from '/then.js';
import { format } from '/words.js';

/** Critics that can be chosen from a list at once. */
const CRITICS_LISTED = 200;

/** Generations of the chosen critic before the present one, newest first. */
function earlier() {
  const all = known.kept.generations[chosen.critic] ?? [];
  return all.filter((generation) => generation !== critic()?.generation).reverse();
}

/** Which reward of another critic is the one that is shown: the one of the same column; -1 where it learns none. @param {any} other */
const sameReward = ({ rewards }) => (rewards ?? []).indexOf(critic()?.rewards?.[chosen.head]);

/**
 * The name of a critic, and what its map shows where that is not what the chosen one's shows: "far: largest Q", "far: energy". Where it does
 * not learn the reward that is shown, its first one is compared.
 * @param {any} other
 */
function titled(other) {
  const { name, actions, rewards, reward_names: names } = other;
  const kind = Boolean(actions) === ofActions() ? '' : actions ? 'largest Q' : 'value';
  const reward = sameReward(other) >= 0 ? '' : names?.[0] ? withoutUnit(names[0]) : `reward ${rewards?.[0] ?? 0}`;
  const words = [kind, reward].filter(Boolean).join(' of ');
  return words ? `${name}: ${words}` : name;
}

/** The critic that is compared with, the chosen one where an earlier model of it is; undefined where neither is. */
function otherCritic() {
  if (chosen.against.startsWith('generation ')) return critic();
  return known.status?.critics.find((/** @type {any} */ { name }) => chosen.against === `critic ${name}`);
}

/**
 * What there is to compare with, as the values of a list have it, each with its words: "generation 3", "critic far", "truth".
 * @returns {[string, [string, string][]][]}
 */
function offers() {
  const critics = known.status?.critics ?? [];
  // The best of action values is not averaged.
  const alike = (/** @type {any} */ actions) => !chosen.average || Boolean(actions) === ofActions();
  const others = critics.filter(({ name, kernel, actions }) => kernel && alike(actions) && name !== critic()?.name);
  const present = /** @type {[string, string]} */ ([`generation ${critic()?.generation}`, 'the present model']);
  const models = earlier().map((generation) => /** @type {[string, string]} */ ([`generation ${generation}`, `generation ${generation}`]));
  const shown = chosen.then === null ? `generation ${chosen.earlier ?? critic()?.generation}` : '';
  return [
    ['models of this critic', [present, ...models].filter(([value]) => value !== shown)],
    // A simulator knows the value of its first reward alone.
    ['simulator', known.truth && chosen.head === 0 ? [['truth', 'what is true']] : []],
    ['other critics', others.slice(0, CRITICS_LISTED).map((other) => [`critic ${other.name}`, titled(other)])],
  ];
}

/** Bring the lists up to date; what has gone is no longer shown, nor compared with. */
export function againstChoices() {
  const option = (/** @type {[string, string]} */ [value, words]) => el('option', { value, textContent: words });
  thenChoice();
  const models = earlier();
  if (!models.includes(chosen.earlier ?? -1) || chosen.named !== null) chosen.earlier = null;
  const shown = $('shown', HTMLSelectElement);
  list(shown, [option(['', 'present']), ...models.map((generation) => option([String(generation), `generation ${generation}`])), ...ofThen().map(option)]);
  shown.value = chosen.then === null ? String(chosen.earlier ?? '') : 'then';
  $('shown-choice').hidden = shown.options.length === 1 || chosen.named !== null;
  const groups = offers().filter(([, entries]) => entries.length);
  const select = $('against', HTMLSelectElement);
  list(select, [
    el('option', { value: '', textContent: 'nothing' }),
    ...groups.map(([label, entries]) => el('optgroup', { label }, ...entries.map(option))),
  ]);
  if (!groups.some(([, entries]) => entries.some(([value]) => value === chosen.against))) chosen.against = '';
  select.value = chosen.against;
  $('against-choice').hidden = !groups.length || chosen.named !== null;
}

/** The model that is shown in place of the present one, as a question has it; null where none is. */
export const shownQuery = () => (chosen.then === null ? chosen.earlier : `then:${chosen.then}`);

/** The question for the other picture, from that for the shown one; null where nothing is compared. @param {URLSearchParams} query */
export function againstQuery(query) {
  const [kind, ...rest] = chosen.against.split(' ');
  if (!kind) return null;
  const other = new URLSearchParams(query);
  other.delete('of');
  if (kind === 'critic') other.set('critic', rest.join(' '));
  else other.set('of', kind === 'truth' ? 'truth' : rest[0]);
  if (kind === 'critic') other.set('head', String(Math.max(sameReward(otherCritic() ?? {}), 0)));
  return other;
}

/** What is compared with, in words. */
export function againstWords() {
  if (chosen.against === 'truth') return 'what is true';
  if (chosen.against === `generation ${critic()?.generation}`) return 'the present model';
  return chosen.against.startsWith('critic ') ? chosen.against.slice(7) : chosen.against;
}

/** The title of the map that is compared with. */
export function againstTitle() {
  const other = chosen.against.startsWith('critic ') ? otherCritic() : undefined;
  if (other) return titled(other);
  const words = againstWords();
  return `${words[0].toUpperCase()}${words.slice(1)}`;
}

/** What the numbers of the map that is compared with are. */
export const otherWord = () => (otherCritic()?.actions ? 'Q' : 'value');

/** Whether both models choose among the same discrete actions. */
export function alikeInActions() {
  const [own, others] = [critic(), otherCritic()].map((of) => of?.actions?.names ?? []);
  return own.length > 0 && own.join('\n') === others.join('\n');
}

/**
 * Where one of two models does not know, as far as the one that knows less. @param {?Field} one @param {?Field} other @returns {?Field}
 */
export function eitherUnknown(one, other) {
  if (!one || !other) return one ?? other;
  const { columns, rows } = one.values.length >= other.values.length ? one : other;
  const at = (/** @type {number} */ k) => /** @type {[number, number]} */ ([((k % columns) + 0.5) / columns, (Math.floor(k / columns) + 0.5) / rows]);
  return new Field(columns, rows, Float32Array.from({ length: columns * rows }, (_, k) => Math.max(one.at(...at(k)), other.at(...at(k)))));
}

/**
 * Shown minus other at the cells of the shown field.
 * @param {import('/canvas.js').Field} shown
 * @param {import('/canvas.js').Field} other
 * @returns {Float32Array}
 */
export function difference(shown, other) {
  const { columns, rows, values } = shown;
  const place = (/** @type {number} */ k) => [((k % columns) + 0.5) / columns, (Math.floor(k / columns) + 0.5) / rows];
  return Float32Array.from(values, (v, k) => v - other.at(place(k)[0], place(k)[1]));
}

/** Where a state variable stands on its range, from 0 to 1. @param {number} v @param {number[]} range */
const share = (v, [low, high]) => (v - low) / (high - low);

/** A place (1,) or (2,) as shares of its ranges. @param {number[]} place @param {number[][]} range @returns {[number, number]} */
const on = ([x, y], range) => [share(x, range[0]), y === undefined ? 0 : share(y, range[1])];

/**
 * At which share of some places two maps of actions have another one; null without places.
 * @param {Field} one
 * @param {Field} other
 * @param {number[][]} places
 * @param {number[][]} range
 */
export function unlike(one, other, places, range) {
  if (!places.length) return null;
  return places.filter((place) => one.cell(...on(place, range)) !== other.cell(...on(place, range))).length / places.length;
}

/**
 * Root mean square and largest size of a field at places (n, 2) or (n, 1) on these ranges; null without places.
 * @param {import('/canvas.js').Field} field
 * @param {number[][]} places
 * @param {number[][]} range
 */
function sizes(field, places, range) {
  const found = places.map((/** @type {number[]} */ place) => field.at(...on(place, range)));
  if (!found.length) return null;
  const square = found.reduce((/** @type {number} */ sum, /** @type {number} */ v) => sum + v * v, 0) / found.length;
  return { rms: Math.sqrt(square), most: Math.max(...found.map(Math.abs)) };
}

/**
 * The size of a difference over the visited states, and where another action is best, in words.
 * @param {Field} field
 * @param {{recent: number[][], range: number[][], chosen: ?Field, otherChosen: ?Field}} drawn
 */
export function differs(field, { recent, range, chosen: own, otherChosen: other }) {
  const found = sizes(field, recent, range);
  if (!found) return '';
  const words = `at visited places ${inValue(format(found.rms, 2))} (root mean square), at most ${inValue(format(found.most, 2))}`;
  const share = own && other && unlike(own, other, recent, range);
  return typeof share === 'number' ? `${words}; another action is best at ${format(100 * share, 2)} % of them` : words;
}
