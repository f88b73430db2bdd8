// What the page has heard from the daemon, and what its reader has chosen.

import { setColours } from '/canvas.js';
import { remembered } from '/dom.js';

/** @typedef {import('./status').Status} Status */
/** A course: its steps, who acts, what else is shown, and from where: `row:` and an offset, or the numbers of a state; nothing for where episodes begin. */
/** @typedef {{steps: string, policy: string, also: string, from: string}} Course */
/** A critic; of one that is not shown there is a brief: name, failure, refit and reasons for care. @typedef {import('./status').CriticStatus & {brief?: true}} CriticStatus */
/** A prediction and the return that came: predicted, realised, deviation, rows until it was known, generation. */
/** @typedef {[number, number, number, number, number]} Pair */
/** Of one reward. @typedef {{pairs: Pair[], summary: Summary, generations: any[][]}} Compared */
/** @typedef {{count: number, correlation: ?number, rms: ?number, bias: ?number, within_90: ?number}} Summary */

/**
 * Columns and history are of the daemon and of the chosen critic, marks of that critic; quality is the newest error and coverage
 * of each critic.
 * @type {{number: number, status: ?Status, columns: string[], history: Record<string, (?number)[]>, quality: (?[number, number])[],
 * marks: Map<number, any>, cumulants: Map<string, any>, states: any, calibration: Compared[][], endpoints: any, stateDim: ?number, lost: ?number, kept: {generations: number[][], bytes: number}, episodes: [number, number, number[]][], truth: boolean, ended: ?string}}
 */
export const known = {
  number: 0,
  status: null,
  columns: [],
  history: {},
  quality: [],
  marks: new Map(),
  // What heads sum, as far as it has been heard, by critic and name.
  cumulants: new Map(),
  states: null,
  calibration: [],
  endpoints: null,
  stateDim: null,
  // When the connection was lost, milliseconds; null while it stands.
  lost: null,
  kept: { generations: [], bytes: 0 },
  // Offset behind each episode, its rows, and the sum of each reward.
  episodes: [],
  truth: false,
  // What a demo has shown, once it has ended.
  ended: null,
};
const PAIRS = 400;
const MARKS = 100;
const EPISODES = 1000;

/**
 * The reader's choices: critic and value function, the axes (a curve without y), where the other variables stand or whether
 * the value is averaged over them, the comparison (see compare.js), the generation that is shown in place of the present model, or the number of rows of which it is shown (see then.js), the name of a head whose map is shown in place of the value's, the
 * kind of error (`error` or `td`), the seconds over which time lines reach, the part of each axis that is shown, [[x0, x1], [y0, y1]], null for the whole, the reward that is planned for, and the course that
 * is predicted.
 * @type {{critic: number, head: number, x: ?number, y: ?number, at: Record<number, number>, average: boolean, against: string, earlier: ?number, then: ?number, named: ?string, error: string, span: number, part: ?number[][], plan: ?{reward: string, discount: string}, course: ?Course}}
 */
export const chosen = {
  critic: 0,
  head: 0,
  x: null,
  y: null,
  at: {},
  average: false,
  against: '',
  earlier: null,
  then: null,
  named: null,
  error: 'error',
  span: remembered.get('span') ?? 600,
  part: null,
  plan: null,
  course: null,
};

/** The chosen critic. Its model's keys are there once `kernel` is. @returns {any} */
export const critic = () => known.status?.critics[chosen.critic];
/**
 * A column of the history that belongs to the chosen critic.
 * @param {string} name
 * @returns {(?number)[]}
 */
export const series = (name) => known.history[`${critic()?.name}.${name}`] ?? [];

/** The predictions and returns of the reward that is shown; null of one whose returns are not compared. @returns {?Compared} */
export const compared = () => known.calibration[chosen.critic]?.[chosen.head] ?? null;

/** The name of a series of returns for the reward that is shown. @param {string} name */
export const ofHead = (name) => (chosen.head ? `${name}:${chosen.head}` : name);

/** The newest error or coverage of a critic; null before there is one. @param {string} name @param {'error' | 'coverage'} which @returns {?number} */
export const newest = (name, which) => known.quality[known.status?.critics.findIndex((each) => each.name === name) ?? -1]?.[which === 'error' ? 0 : 1] ?? null;

/** Coordinates of an action, which stand behind the state's in the inputs of a model of action values. */
const actionWidth = () => critic()?.actions?.names.length || critic()?.actions?.low.length || 0;
/** State variables. @returns {number} */
export const dim = () => (critic()?.inputs ? critic().inputs.scale.length - actionWidth() : (known.status?.state_dim ?? 0));
/** The name of state variable k, with its unit where it has one: "speed [rad/s]". @param {number} k @returns {string} */
export const variable = (k) => critic()?.inputs?.names?.[k] ?? `state ${k}`;
/** A name and its unit, which stands in brackets at its end. */
const UNIT = /^(.*\S)\s*\[([^\]]+)\]$/;
/** "energy": a name without its unit. @param {string} name */
export const withoutUnit = (name) => UNIT.exec(name)?.[1] ?? name;
/** The name of state variable k without its unit. @param {number} k @returns {string} */
export const plain = (k) => withoutUnit(variable(k));
/** A number with the unit of state variable k. @param {number} k @param {string} number */
export const inUnit = (k, number) => {
  const unit = UNIT.exec(variable(k))?.[2];
  return unit ? `${number} ${unit}` : number;
};

/** The name of a reward of the chosen critic, with its unit where it has one; null where it has no name. @returns {?string} */
export const rewardName = (h = chosen.head) => critic()?.reward_names?.[h] || null;
/** "energy": the name of a reward without its unit; null where it has no name. @returns {?string} */
export const rewardWord = (h = chosen.head) => {
  const name = rewardName(h);
  return name && withoutUnit(name);
};
/** The unit of a reward, and so of its values, deviations and errors; empty where none is known. */
export const rewardUnit = (h = chosen.head) => UNIT.exec(rewardName(h) ?? '')?.[2] ?? '';
/** "0.4 J": a number of a reward, with its unit. @param {string} number */
export const inReward = (number, h = chosen.head) => (rewardUnit(h) ? `${number} ${rewardUnit(h)}` : number);
/** "value [J]": what an axis shows, with the unit of a reward. @param {string} words */
export const ofReward = (words, h = chosen.head) => (rewardUnit(h) ? `${words} [${rewardUnit(h)}]` : words);

/** The key of a head of the chosen critic among what heads sum. @param {string} name */
export const headKey = (name) => `${critic()?.name} ${name}`;
/** The unit of a head: the unit of the reward or state variable that it sums; empty where it sums anything else, or has not been heard of. @param {string} name */
function headUnit(name) {
  const [kind, of] = Object.entries(known.cumulants.get(headKey(name)) ?? {})[0] ?? [];
  // A column of the rows, of which a critic learns some.
  if (kind === 'Reward') return rewardUnit(critic()?.rewards?.indexOf(of) ?? -1);
  return kind === 'State' || kind === 'NextState' ? (UNIT.exec(variable(of))?.[2] ?? '') : '';
}

/** The unit of what the maps of the value show. */
export const valueUnit = () => (chosen.named === null ? rewardUnit() : headUnit(chosen.named));
/** A number of these maps with its unit. @param {string} number */
export const inValue = (number) => (valueUnit() ? `${number} ${valueUnit()}` : number);

/** All that there is to know, from the beginning. @param {any} all */
export function begin(all) {
  Object.assign(known, { number: all.number, status: all.status, columns: all.columns, history: all.history, quality: all.quality });
  known.endpoints = all.endpoints;
  known.stateDim = all.state_dim ?? null;
  known.kept = all.kept;
  known.episodes = all.episodes;
  known.truth = all.truth;
  known.ended = all.ended ?? null;
  known.states = all.states;
  known.marks = new Map(all.marks.map((/** @type {import('./types').Mark} */ mark) => [mark.number, mark]));
  known.calibration = all.calibration;
  for (const [name, hex] of Object.entries(all.colours)) setColours(name, hex);
}

/** What has come since, of the chosen critic in full. @param {any} news */
export function apply(news) {
  const shown = chosen.critic;
  const critics = known.status?.critics.map((each, k) => (k === shown ? news.own : (news.critics[k] ?? each)));
  Object.assign(known, { number: news.number, status: { ...news.status, critics }, states: news.states, quality: news.quality, ended: news.ended ?? null });
  known.kept.generations[shown] = news.kept;
  known.columns.forEach((name, k) => known.history[name].push(news.point[k]));
  for (const mark of news.marks) known.marks.set(mark.number, mark);
  for (const number of [...known.marks.keys()].slice(0, -MARKS)) known.marks.delete(number);
  known.episodes.push(...news.episodes);
  known.episodes.splice(0, known.episodes.length - EPISODES);
  news.calibration.forEach((/** @type {Compared} */ { pairs, summary, generations }, /** @type {number} */ h) => {
    const own = known.calibration[shown][h];
    if (generations) own.generations = generations;
    own.pairs.push(...pairs);
    own.pairs.splice(0, own.pairs.length - PAIRS);
    own.summary = summary;
  });
}

/** The place on the axes of a state as a JSON head or a list has it. */
export const axesNow = () => [chosen.x, chosen.y].filter((k) => k !== null);
