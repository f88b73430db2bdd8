// What the robot would do for another reward: the values and the best actions of a plan, beside the present ones. Questions to the model of the
// transition are answered in the daemon's time: each is asked again until the answer has come, something else is asked, or the reader leaves.

import { actionScale, actionWords } from '/actions.js';
import { extent } from '/canvas.js';
import { unlike } from '/compare.js';
import { Curve } from '/curve.js';
import { $, el, list, say } from '/dom.js';
import { HeatMap } from '/heat.js';
import { axesNow, chosen, critic, plain, rewardUnit, variable, withoutUnit } from '/known.js';
import { curveOf, fading, pictureOf } from '/picture.js';
import { join, link, readout, scaleOf, shownActions, sliceQuery, valueColumns } from '/value.js';
import { format, grouped } from '/words.js';

/** Milliseconds between two questions. */
const AGAIN_MS = 1000;

/** The last question: of a page one is put at a time. @type {Promise<any>} */
let before = Promise.resolve();

export class Asked {
  /** @param {string} what where it is said what the daemon says meanwhile */
  constructor(what) {
    this.what = what;
    this.turn = 0;
  }

  /** Nothing is asked any more. */
  drop() {
    this.turn += 1;
  }

  /** The reply; null where something else is asked meanwhile, or nothing. @param {string} url @returns {Promise<?Response>} */
  ask(url) {
    this.turn += 1;
    const { turn } = this;
    const answer = before.then(() => this.put(url, turn));
    before = answer.catch(() => null);
    return answer;
  }

  /** @param {string} url @param {number} turn @returns {Promise<?Response>} */
  async put(url, turn) {
    while (turn === this.turn) {
      // A hidden page does not ask: the daemon then drops its question.
      const reply = document.hidden ? null : await fetch(url).catch(() => null);
      const words = reply?.status === 503 ? await reply.text() : null;
      if (turn !== this.turn) break;
      if (words) said(this.what, [`The ${this.what}: ${words.trim()}.`]);
      else if (reply) return reply;
      await new Promise((done) => setTimeout(done, AGAIN_MS));
    }
    return null;
  }
}

/** Say this of a plan or of a course. @param {string} what @param {string[]} sentences @param {string[]} [doubts] */
export function said(what, sentences, doubts = []) {
  say($(`${what}-said`), sentences.filter(Boolean).join(' '));
  list($(`${what}-doubts`), doubts.map((textContent) => el('li', { textContent })));
}

/** "3.1 %" @param {number} v */
export const percent = (v) => `${format(100 * v, 2)} %`;

/** "4.1 ± 0.2 (1 std)" @param {number} mean @param {?number} error */
export const plusMinus = (mean, error) => `${format(mean)}${typeof error === 'number' ? ` ± ${format(error, 2)} (1 std)` : ''}`;

/** What an answer stands on, in sentences. @param {any} of unsupported, radius, and the model that it was made of */
export function standing({ unsupported, radius, model }) {
  return [
    typeof unsupported === 'number' ? `${percent(unsupported)} of what follows is supported by no row.` : '',
    typeof radius === 'number' ? `Spectral radius ${format(radius)}.` : '',
    typeof model.lost === 'number' ? `${format(model.lost, 2)} of the successors is lost.` : '',
  ];
}

/** Milliseconds after which a plan is asked for again: the daemon makes another once the critic has learned much. */
const EVERY_MS = 15000;

const question = new Asked('plan');
let asked = { key: '', at: 0 };
/** What was found, of which question, and its picture. @type {?{key: string, found: any, picture: any}} */
let answer = null;

/** What is planned for, as a question has it. */
export function planQuery() {
  const query = new URLSearchParams({ critic: critic().name });
  for (const [key, value] of Object.entries(chosen.plan ?? {})) if (value) query.set(key, value);
  return query;
}

/** What the critic has learned of where actions lead; nothing without the setting. */
export const world = () => critic().actions?.world;
/** Whether it answers, be it by a refusal; before the first refit it does not. */
export const answers = () => Boolean(world()?.elements || world()?.refused);

/** Bring the control up to date, and ask for the plan where there may be another. */
export async function learnPlan() {
  $('what-if').hidden = !answers();
  // It stands beside the present value alone.
  if (!world() || chosen.against || chosen.named !== null || chosen.earlier !== null || chosen.then !== null) chosen.plan = null;
  controls();
  // What an address asks for waits until there is a model of the transition.
  if (!answers() || chosen.plan === null) {
    if (asked.key) said('plan', []);
    [asked, answer] = [{ key: '', at: 0 }, null];
    question.drop();
    return showPlan();
  }
  if (document.hidden || chosen.x === null) return undefined;
  const key = `${planQuery()} ${critic().generation} ${sliceQuery()}`;
  if (key === asked.key && Date.now() - asked.at < EVERY_MS) return undefined;
  asked = { key, at: Date.now() };
  const reply = await question.ask(`/api/plan?${planQuery()}`);
  if (reply && !reply.ok) {
    answer = null;
    said('plan', [`Refused: ${(await reply.text()).trim()}.`]);
    return showPlan();
  }
  if (!reply) return undefined;
  const found = await reply.json();
  // Another question has taken its place meanwhile.
  if (key !== asked.key || !chosen.plan) return undefined;
  const query = sliceQuery();
  query.set('of', `plan:${chosen.plan.discount ?? ''}:${chosen.plan.reward ?? ''}`);
  query.set('head', '0');
  const map = await question.ask(`/api/map?${query}`);
  if (!map?.ok) return undefined;
  answer = { key: String(query), found, picture: await pictureOf(map) };
  return showPlan();
}

/** The words of the control. */
function controls() {
  $('plan-back', HTMLButtonElement).hidden = chosen.plan === null;
  list($('plan-rewards'), (critic().reward_names ?? []).map((/** @type {string} */ name) => el('option', { value: withoutUnit(name), textContent: name })));
  const [x] = axesNow();
  $('plan-reward', HTMLInputElement).placeholder = x === undefined ? '' : `-abs(${plain(Number(x))})`;
  $('plan-discount', HTMLInputElement).placeholder = format(critic().discount);
  $('course-policy').querySelector('[value=plan]').disabled = chosen.plan === null;
}

/** @param {any} d */
function sentences(d) {
  const known_ = d.known ? 'known everywhere' : d.reward_rows ? `learned from the last ${grouped(d.reward_rows)} rows` : 'learned from the rows';
  return [
    `Planned for ${d.reward} (${known_}), discount ${format(d.discount)}: ${plusMinus(d.value, d.error)} from where episodes begin.`,
    ...standing(d),
    `The map prefers the action of the plan in ${percent(d.alike)} of the states.`,
    elsewhere(),
    `Of generation ${d.generation}, at row ${grouped(d.offset)}.`,
  ];
}

/** Where another action is best than now, among discrete ones. */
function elsewhere() {
  const [own, other] = [shownActions(), answer?.picture];
  if (!own || !critic().actions.names.length || String(own.range) !== String(other.range)) return '';
  const share = unlike(own.chosen, other.chosen, other.recent, other.range);
  return share === null ? '' : `Another action than now is best at ${percent(share)} of the visited places.`;
}

/** Draw the plan that has come, where it is of these axes. */
export function showPlan() {
  const picture = answer?.picture;
  const curve = picture?.rows === 1;
  $('maps').classList.toggle('planned', Boolean(picture) && !curve);
  $('plan-card').hidden = !picture;
  $('plan-action-card').hidden = !picture || curve;
  if (!answer || picture.range.length !== axesNow().length) return;
  const { found, key } = answer;
  said('plan', sentences(found), found.warnings);
  const words = `for ${found.reward}, discount ${format(found.discount)}`;
  say($('plan-note'), words);
  [map.asleep, line.asleep] = [curve, !curve];
  const fade = fading(picture);
  const common = { range: picture.range, points: [], key, generation: found.offset };
  // The reward of the rows has the unit of the present one.
  const unit = chosen.plan?.reward ? '' : rewardUnit();
  if (curve) {
    const { heights, ...own } = curveOf(picture, fade);
    const scale = scaleOf(`plan curve ${planQuery()}`, [Math.min(...heights), Math.max(...heights)]);
    $('plan-legend').hidden = !own.unknown.some(Boolean);
    line.show({ ...common, ...own, scale, other: [], came: [], name: variable(Number(chosen.x)), height: unit ? `value [${unit}]` : 'value' });
  } else {
    const veiled = { ...common, names: axesNow().map((k) => variable(Number(k))), fade: $('fade', HTMLInputElement).checked ? fade : null };
    map.show({ ...veiled, unit, field: picture.value, scale: scaleOf(`plan ${planQuery()}`, extent(picture.value, fade)) });
    if (picture.chosen) actions.show({ ...veiled, unit: '', field: picture.chosen, ...actionScale(), key: `${key} ${found.offset}` });
  }
  for (const [id, what] of [['map-plan', 'Largest Q'], ['map-plan-action', 'Best action']]) $(id).setAttribute('aria-label', `${what} of the plan ${words}`);
}

/** What is best at a place now, and by the plan. @param {import('./types').At} at */
function best({ across, up }) {
  const [own, other] = [shownActions(), answer?.picture];
  return [`action ${actionWords(other.chosen.cell(across, up), format)}`, own ? `now ${actionWords(own.chosen.cell(across, up), format)}` : ''].filter(Boolean);
}

/** @param {import('./types').At} at */
const valued = ({ value, across, up }) => `Q of the plan ${plusMinus(value, answer?.picture.deviation?.at(across, up) ?? null)}`;

/** Follow the pointer. @param {any} picture @param {string} id @param {any} at @param {(at: import('./types').At) => string} words @param {(at: import('./types').At) => string[]} more */
function pointed(picture, id, at, words, more) {
  if (picture.asleep) return;
  link(picture, at);
  readout($(`${id}-out`), at, words, more);
}

const map = new HeatMap($('map-plan'), 'value', (at) => pointed(map, 'map-plan', at, valued, best));
/** @type {Curve} */
const line = new Curve($('map-plan'), (at) => pointed(line, 'map-plan', at, valued, best));
const actions = new HeatMap($('map-plan-action'), 'value', (at) => pointed(actions, 'map-plan-action', at, (each) => best(each)[0], (each) => best(each).slice(1)));
for (const each of [map, line, actions]) join(each);

/** The numbers of the plan by cell; null before there are any. */
export const planColumns = () => valueColumns(answer?.picture ?? null);

/** The control, once. @param {() => void} seen */
export function buildPlan(seen) {
  $('plan-form').addEventListener('submit', (/** @type {Event} */ e) => {
    e.preventDefault();
    const [reward, discount] = ['plan-reward', 'plan-discount'].map((id) => $(id, HTMLInputElement).value.trim());
    Object.assign(chosen, { plan: { reward, discount }, against: '', named: null, earlier: null, then: null });
    seen();
  });
  $('plan-back', HTMLButtonElement).addEventListener('click', () => {
    chosen.plan = null;
    seen();
  });
}

/** Follow the address. */
export function toldPlan() {
  if (!chosen.plan) return;
  $('what-if', HTMLDetailsElement).open = true;
  $('plan-reward', HTMLInputElement).value = chosen.plan.reward;
  $('plan-discount', HTMLInputElement).value = chosen.plan.discount;
}
