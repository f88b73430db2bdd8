// Where the robot will be: the predicted course of the variables on the axes, and of what else is asked for.

import { Curve } from '/curve.js';
import { $, el, say } from '/dom.js';
import { axesNow, chosen, critic, dim, inUnit, plain, variable } from '/known.js';
import { markedRow } from '/path.js';
import { Asked, answers, percent, planQuery, plusMinus, said, standing, world } from '/plan.js';
import { foresee, onPointing } from '/value.js';
import { format, grouped, round } from '/words.js';

/** Pixels that a mouse that chooses a place may move meanwhile. */
const STILL = 8;

const question = new Asked('course');
let asked = '';
/** @type {any} */
let found = null;
/** What each chart shows; those beyond the present variables are hidden. @type {{card: any, title: any, reach: any, canvas: any, curve: Curve}[]} */
const charts = [];
/** Where a course is to begin. */
let from = '';
/** The place of the pointer on the value's picture. @type {?number[]} */
let pointed = null;

/** "row 1 200", "x 0.3, load 1": where a course begins, in words. @param {string} text */
function startWords(text) {
  if (!text) return 'where episodes begin';
  if (text.startsWith('row:')) return `row ${grouped(text.slice(4))}`;
  const state = text.split(',');
  return axesNow().map((k) => `${plain(Number(k))} ${inUnit(Number(k), format(Number(state[Number(k)]), 3))}`).join(', ');
}

/** What is shown: the variables of the axes, and what else is asked for. */
const shown = () => [...axesNow().map((k) => `state[${k}]`), ...(chosen.course?.also ? [chosen.course.also] : [])];
/** The number of the variable that is shown; undefined of anything else. @param {string} name */
const numberOf = (name) => /^state\[(\d+)\]$/.exec(name)?.[1];
/** What it is called, with its unit. @param {string} name */
const called = (name) => (numberOf(name) ? variable(Number(numberOf(name))) : name);

/** Ask for the course where another one is meant. */
export async function learnCourse() {
  if (!world() || (chosen.course?.policy === 'plan' && !chosen.plan)) chosen.course = null;
  say($('course-start'), `From ${startWords(from || defaultStart())}: a click or Enter on the map or on the trajectory chooses another state.`);
  const course = answers() ? chosen.course : null;
  $('course').hidden = course === null;
  $('course-back', HTMLButtonElement).hidden = course === null;
  if (!course) {
    question.drop();
    [asked, found] = ['', null];
    return foresee([]);
  }
  if (document.hidden || chosen.x === null) return undefined;
  const query = course.policy === 'plan' ? planQuery() : new URLSearchParams({ critic: critic().name });
  query.set('policy', course.policy);
  query.set('steps', course.steps);
  query.set('show', shown().join('\n'));
  if (course.from.startsWith('row:')) query.set('row', course.from.slice(4));
  else if (course.from) query.set('at', course.from);
  const key = `${query} ${critic().generation}`;
  if (key === asked) return undefined;
  asked = key;
  const reply = await question.ask(`/api/rollout?${query}`);
  if (!reply) return undefined;
  found = reply.ok ? Object.assign(await reply.json(), { from: course.from, policy: course.policy }) : null;
  if (!found) asked = '';
  if (!found) said('course', [`Refused: ${(await reply.text()).trim()}.`]);
  return showCourse();
}

const defaultStart = () => (markedRow() === null ? '' : `row:${markedRow()}`);

/** What came of a variable after each step; no number where nothing has come, or it is no variable. @param {string} name @returns {number[]} */
function came(name) {
  return Array.from({ length: found.steps }, (_, step) => found.came?.states[step + 1]?.[numberOf(name) ?? -1] ?? NaN);
}

/** How far a prediction can be believed. @param {any} of @returns {string} */
function reachWords({ reach, reach_known: known }) {
  if (!reach) return known ? 'not even one step' : 'not known: too few later rows';
  const steps = reach === 1 ? '1 step' : `${grouped(reach)} steps`;
  return known ? (reach === found.steps ? `all ${steps}` : steps) : `at least ${steps}: no later chains are longer`;
}

/** @returns {string[]} */
function sentences() {
  const { alive, starts, steps, value, policy } = found;
  const who = $('course-policy').querySelector(`[value=${policy}]`)?.textContent;
  const last = alive.at(-1);
  const after = found.came ? Math.min(found.came.states.length - 1, steps) : 0;
  return [
    `From ${startWords(found.from)}${found.from ? '' : ` (${grouped(starts)} states)`}, if ${who}: the mean over chance.`,
    typeof value.mean === 'number' ? `Worth ${plusMinus(value.mean, value.error)} of ${value.reward} there, discount ${format(value.discount)}.` : '',
    last < 0.995 ? `After ${grouped(steps)} steps ${percent(last)} has not ended.` : '',
    ...standing({ ...found, radius: value.radius }),
    after ? `Dashed is what came: ${grouped(after)} ${after === 1 ? 'step' : 'steps'}${found.came.terminated && after < steps ? ', then the episode terminated' : ''}.` : '',
  ];
}

/** Draw the course that has come. */
export function showCourse() {
  $('course-charts').hidden = $('course-legend').hidden = !found;
  if (!found) return foresee([]);
  said('course', sentences(), [...found.warnings, ...(found.value.refused ?? [])]);
  const { variables } = found;
  while (charts.length < variables.length) charts.push(chart(charts.length));
  charts.forEach(({ card, title, reach, canvas, curve }, k) => {
    card.hidden = k >= variables.length;
    if (card.hidden) return;
    const { name, mean, within, reach: known } = variables[k];
    say(title, called(name));
    say(reach, `reach ${reachWords(variables[k])}`);
    const other = came(name);
    const ends = [...mean.flatMap((/** @type {number} */ v, /** @type {number} */ j) => [v - within[j], v + within[j]]), ...other.filter((v) => !Number.isNaN(v))];
    curve.show({
      range: [0.5, mean.length + 0.5],
      scale: round([Math.min(...ends), Math.max(...ends)]),
      mean,
      deviation: within,
      widths: [1],
      other,
      unknown: mean.map((/** @type {number} */ _, /** @type {number} */ j) => j >= known),
      came: [],
      points: [],
      name: 'steps ahead',
      height: called(name),
      key: asked,
      generation: found.offset,
    });
    canvas.setAttribute('aria-label', `${called(name)} ${mean.length} steps ahead: from ${format(mean[0])} to ${format(mean.at(-1))}; reach ${reachWords(variables[k])}`);
  });
  $('course-came').hidden = !found.came;
  const means = variables.slice(0, axesNow().length).map((/** @type {any} */ of) => of.mean);
  const first = startState();
  const start = first ? [axesNow().map((axis) => first[Number(axis)])] : [];
  return foresee(means.length === 2 ? [...start, ...means[0].map((/** @type {number} */ v, /** @type {number} */ j) => [v, means[1][j]])] : []);
}

/** The state in which the course begins; null where it begins in several. @returns {?number[]} */
const startState = () => found.came?.states[0] ?? (found.from ? found.from.split(',').map(Number) : null);

/** @param {number} k */
function chart(k) {
  const [title, reach] = [el('span'), el('b')];
  const canvas = el('canvas', { className: 'plot', tabIndex: 0, role: 'img' });
  const card = el('div', { className: 'card line' }, el('h3', {}, title, reach), canvas);
  $('course-charts').append(card);
  const curve = new Curve(canvas, (at) => {
    if (!at) return $('course-out').replaceChildren();
    const { name, mean, within } = found.variables[k];
    const step = Math.min(Math.max(Math.round(at.place[0]), 1), mean.length) - 1;
    const real = came(name)[step];
    const near = within[step] === null ? '' : ` ± ${format(within[step], 2)} (90 %)`;
    return $('course-out').replaceChildren(`${step + 1} ${step ? 'steps' : 'step'} ahead: `, el('b', { textContent: `${called(name)} ${format(mean[step])}${near}` }), Number.isNaN(real) ? '' : ` · came ${format(real)}`);
  });
  return { card, title, reach, canvas, curve };
}

/** The charts that are shown, to be saved. */
export const courseParts = () =>
  charts.filter(({ card }) => !card.hidden).map(({ canvas, curve, title, reach }) => ({ canvas, paint: () => curve.paint(), title: [`${title.textContent}: ${reach.textContent}`] }));

/** The course as columns; null before there is one. */
export function courseColumns() {
  if (!found) return null;
  const each = found.variables.flatMap((/** @type {any} */ { name, mean, within }) => {
    const real = came(name);
    return [[called(name), mean], [`${called(name)} within`, within], [`${called(name)} came`, real.map((v) => (Number.isNaN(v) ? null : v))]];
  });
  return { step: found.alive.map((/** @type {number} */ _, /** @type {number} */ k) => k + 1), ...Object.fromEntries(each), not_ended: found.alive };
}

/** A state has been chosen. @param {string} start @param {() => void} seen */
function begin(start, seen) {
  if (!$('what-if', HTMLDetailsElement).open || $('what-if').hidden || !start) return;
  from = start;
  if (chosen.course) chosen.course = { ...chosen.course, from };
  seen();
}

/** Call `choose` with a click that does not drag, and with Enter. @param {any} canvas @param {() => void} choose */
function onChoosing(canvas, choose) {
  /** @type {?number[]} */
  let pressed = null;
  // The picture has seen the pointer once it is painted.
  const painted = () => requestAnimationFrame(() => requestAnimationFrame(choose));
  canvas.addEventListener('pointerdown', (/** @type {PointerEvent} */ e) => (pressed = [e.offsetX, e.offsetY]));
  canvas.addEventListener('click', (/** @type {PointerEvent} */ e) => {
    const moved = pressed ? Math.hypot(e.offsetX - pressed[0], e.offsetY - pressed[1]) : 0;
    if (moved < STILL) painted();
  });
  canvas.addEventListener('keydown', (/** @type {KeyboardEvent} */ e) => e.key === 'Enter' && painted());
}

/** The control, once. @param {() => void} seen */
export function buildCourse(seen) {
  const value = (/** @type {string} */ id) => $(id, HTMLInputElement).value.trim();
  $('course-form').addEventListener('submit', (/** @type {Event} */ e) => {
    e.preventDefault();
    asked = '';
    chosen.course = { steps: value('course-steps'), policy: $('course-policy', HTMLSelectElement).value, also: value('course-show'), from: from || defaultStart() };
    seen();
  });
  $('course-back', HTMLButtonElement).addEventListener('click', () => {
    chosen.course = null;
    from = '';
    seen();
  });
  onPointing((at) => {
    pointed = at?.place ?? null;
  });
  onChoosing($('map-value'), () => {
    if (!pointed) return;
    const place = pointed;
    const state = Array.from({ length: dim() }, (_, k) => (axesNow().includes(k) ? place[axesNow().indexOf(k)] : (chosen.at[k] ?? 0)));
    begin(state.map((v) => Number(v.toPrecision(5))).join(), seen);
  });
  onChoosing($('path'), () => begin(defaultStart(), seen));
}

/** Follow the address. */
export function toldCourse() {
  const { course } = chosen;
  if (!course) return;
  $('what-if', HTMLDetailsElement).open = true;
  from = course.from;
  $('course-steps', HTMLInputElement).value = course.steps;
  $('course-policy', HTMLSelectElement).value = course.policy;
  $('course-show', HTMLInputElement).value = course.also;
}
