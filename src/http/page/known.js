// What the page has heard from the daemon, and what its reader has chosen.

import { setColours } from '/canvas.js';
import { remembered } from '/dom.js';

/** @typedef {import('./status').Status} Status */
/** @typedef {import('./status').CriticStatus} CriticStatus */
/** A prediction and the return that came: predicted, realised, deviation, rows until it was known, generation. */
/** @typedef {[number, number, number, number, number]} Pair */
/** @typedef {{count: number, correlation: ?number, rms: ?number, bias: ?number, within_90: ?number}} Summary */

/**
 * @type {{number: number, status: ?Status, columns: string[], history: Record<string, (?number)[]>,
 * marks: Map<number, any>, states: any, calibration: {pairs: Pair[], summary: Summary}[], endpoints: any, stateDim: ?number, kept: {generations: number[][], bytes: number}, episodes: [number, number, number[]][], truth: boolean}}
 */
export const known = {
  number: 0,
  status: null,
  columns: [],
  history: {},
  marks: new Map(),
  states: null,
  calibration: [],
  endpoints: null,
  stateDim: null,
  kept: { generations: [], bytes: 0 },
  // Offset behind each episode, its rows, and the sum of each reward.
  episodes: [],
  truth: false,
};
const PAIRS = 400;
const MARKS = 100;
const EPISODES = 1000;

/**
 * The reader's choices: critic and value function, the axes (a curve without y), where the other variables stand or whether
 * the value is averaged over them, the comparison (see compare.js), the seconds over which time lines reach.
 * @type {{critic: number, head: number, x: ?number, y: ?number, at: Record<number, number>, average: boolean, against: string, span: number}}
 */
export const chosen = { critic: 0, head: 0, x: null, y: null, at: {}, average: false, against: '', span: remembered.get('span') ?? 600 };

/** The chosen critic. Its model's keys are there once `kernel` is. @returns {any} */
export const critic = () => known.status?.critics[chosen.critic];
/**
 * A column of the history that belongs to the chosen critic. Where its past has not arrived yet, only its end is there.
 * @param {string} name
 * @returns {(?number)[]}
 */
export function series(name) {
  const found = known.history[`${critic()?.name}.${name}`] ?? [];
  const missing = (known.history.time?.length ?? 0) - found.length;
  return missing > 0 ? [...Array(missing).fill(null), ...found] : found;
}

/** Coordinates of an action, which stand behind those of the state in the inputs of a model of action values. */
const actionWidth = () => critic()?.actions?.names.length || critic()?.actions?.low.length || 0;
/** State variables. @returns {number} */
export const dim = () => (critic()?.inputs ? critic().inputs.scale.length - actionWidth() : (known.status?.state_dim ?? 0));
/** The name of state variable k, with its unit where it has one: "speed [rad/s]". @param {number} k @returns {string} */
export const variable = (k) => critic()?.inputs?.names?.[k] ?? `state ${k}`;
/** A name and its unit, which stands in brackets at its end. */
const UNIT = /^(.*\S)\s*\[([^\]]+)\]$/;
/** The name of state variable k without its unit. @param {number} k @returns {string} */
export const plain = (k) => UNIT.exec(variable(k))?.[1] ?? variable(k);
/** A number with the unit of state variable k. @param {number} k @param {string} number */
export const inUnit = (k, number) => {
  const unit = UNIT.exec(variable(k))?.[2];
  return unit ? `${number} ${unit}` : number;
};

/** All that there is to know, from the beginning. @param {any} all */
export function begin(all) {
  Object.assign(known, { number: all.number, status: all.status, columns: all.columns, history: all.history });
  known.endpoints = all.endpoints;
  known.stateDim = all.state_dim ?? null;
  known.kept = all.kept;
  known.episodes = all.episodes;
  known.truth = all.truth;
  known.states = all.states;
  known.marks = new Map(all.marks.map((mark) => [mark.number, mark]));
  known.calibration = all.calibration;
  for (const [name, hex] of Object.entries(all.colours)) setColours(name, hex);
}

/** What has come since. @param {any} news */
export function apply(news) {
  Object.assign(known, { number: news.number, status: news.status, states: news.states, kept: news.kept });
  known.columns.forEach((name, k) => known.history[name].push(news.point[k]));
  for (const mark of news.marks) known.marks.set(mark.number, mark);
  for (const number of [...known.marks.keys()].slice(0, -MARKS)) known.marks.delete(number);
  known.episodes.push(...news.episodes);
  known.episodes.splice(0, known.episodes.length - EPISODES);
  news.calibration.forEach(({ pairs, summary }, k) => {
    known.calibration[k].pairs.push(...pairs);
    known.calibration[k].pairs.splice(0, known.calibration[k].pairs.length - PAIRS);
    known.calibration[k].summary = summary;
  });
}

/** The place on the axes of a state as a JSON head or a list has it. */
export const axesNow = () => [chosen.x, chosen.y].filter((k) => k !== null);
