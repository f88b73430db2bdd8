// Where the model is wrong: errors over the axes of the map, and the ten worst states.

import { note } from '/address.js';
import { averageOthers, chooseAxes, standAt } from '/axes.js';
import { Field } from '/canvas.js';
import { Curve } from '/curve.js';
import { $, el, list, say } from '/dom.js';
import { HeatMap } from '/heat.js';
import { axesNow, chosen, inReward, inUnit, ofReward, plain, rewardUnit, variable } from '/known.js';
import { lookBack } from '/path.js';
import { ranked } from '/relevance.js';
import { join, link, scaleOf, spot, viewQuery } from '/value.js';
import { format, grouped } from '/words.js';

/** Milliseconds between two questions under the same axes. */
const EVERY_MS = 5000;
/** States of a cell below which it is pale, and how pale a cell of hardly any is. */
const CELL = 10;
const PALE = 0.5;
/** Variables that are named of a state. */
const NAMED = 4;

/** @type {any} */
let answer = null;
let asked = { key: '', at: 0 };
let asking = false;

/** "1.4 higher", with a true word for the sign. @param {number} error */
const beside = (error) => `${inReward(format(Math.abs(error), 2))} ${error > 0 ? 'higher' : 'lower'}`;

/** The picture that is shown: over one variable a curve. @param {HeatMap | Curve} picture @param {any} at its answer to the pointer */
function pointed(picture, at) {
  if (picture.asleep) return;
  link(picture, at);
  if (!at || !answer) {
    $('map-error-out').replaceChildren();
    return;
  }
  const across = Math.min(Math.floor(at.across * answer.columns), answer.columns - 1);
  const up = Math.min(Math.floor(at.up * answer.cell_rows), answer.cell_rows - 1);
  const count = answer.count[up * answer.columns + across];
  const place = axesNow().map((k, j) => `${plain(Number(k))} ${inUnit(Number(k), format(at.place[j], 3))}`);
  $('map-error-out').replaceChildren(
    `${place.join(', ')}: `,
    el('b', { textContent: count ? `${which()} ${beside(at.value)} than predicted` : answer.returns ? 'no return is known here' : 'no row is known here' }),
    count ? ` · mean of ${grouped(count)}` : '',
  );
}

const map = new HeatMap($('map-error'), 'signed', (at) => pointed(map, at));
/** @type {Curve} */
const curve = new Curve($('map-error'), (at) => pointed(curve, at));

join(map);
join(curve);

/** Values of another policy than the one that acts have no returns: there is the TD error alone. */
const ofTd = () => chosen.error === 'td' || answer?.returns === false;

/** The worst states by the kind of error that is shown, its size over all states, and whether none is more than chance. @returns {{rms: number, chance: boolean, states: import('./types').Worst[]}} */
const ranking = () => (ofTd() ? answer.worst.td : answer.worst.error);

const which = () => (ofTd() ? 'reward and next value' : 'returns');

/** Ask where the model is wrong, where it may have changed. */
export async function learnErrors() {
  if (asking || document.hidden || chosen.x === null || $('view').hidden) return;
  const query = viewQuery();
  const key = query.toString();
  if (key === asked.key && Date.now() - asked.at < EVERY_MS) return;
  asking = true;
  asked = { key, at: Date.now() };
  try {
    const reply = await fetch(`/api/errors?${query}`);
    if (reply.ok) {
      answer = { ...(await reply.json()), key };
      showErrors();
    }
  } catch {
    /* the event stream says that the daemon is away */
  }
  asking = false;
}

/** Draw what was answered. */
export function showErrors() {
  if (!answer || answer.key !== viewQuery().toString()) return;
  $('error-card').hidden = !answer.samples;
  worstList();
  if (!answer.samples) return;
  $('error-kind').hidden = !answer.returns;
  say($('error-of'), answer.returns ? 'return' : 'row');
  const means = ofTd() ? answer.td : answer.error;
  const numbers = new URLSearchParams(answer.key).get('range')?.split(',').map(Number) ?? [];
  [map.asleep, curve.asleep] = [answer.cell_rows === 1, answer.cell_rows > 1];
  const common = { range: [numbers.slice(0, 2), numbers.slice(2)], points: [], key: `${answer.key} ${chosen.error}`, generation: answer.generation };
  const most = Math.max(...means.map((/** @type {?number} */ v) => Math.abs(v ?? 0)), 1e-9);
  if (curve.asleep) showMap(means, most, common);
  else showCurve(means, common);
  say($('error-note'), `${answer.returns ? '' : 'TD error: reward and next value − Q, '}mean over ${grouped(answer.samples)} visited states${curve.asleep ? '' : '; dots: single ones'}`);
  $('map-error').setAttribute('aria-label', `Errors between −${format(most, 3)} and ${format(most, 3)}${curve.asleep ? ', zero in the middle' : ''}`);
}

/** @param {(?number)[]} means @param {number} most @param {any} common */
function showMap(means, most, common) {
  const [, end] = scaleOf(`error ${chosen.error}`, [0, most]);
  // The fewer states the paler; hatched where there are none.
  const unknown = answer.count.map((/** @type {number} */ n) => (n ? PALE * Math.max(0, 1 - n / CELL) : 1));
  map.show({
    ...common,
    field: new Field(answer.columns, answer.cell_rows, means.map((v) => v ?? 0)),
    fade: new Field(answer.columns, answer.cell_rows, unknown),
    names: axesNow().map((k) => variable(Number(k))),
    unit: rewardUnit(),
    scale: [-end, end],
    blocks: true,
  });
}

/** The means as a line, and errors of single states as dots. @param {(?number)[]} means @param {any} common */
function showCurve(means, common) {
  const came = answer.points.map((/** @type {number[]} */ [at, error, td]) => [at, ofTd() ? td : error]);
  const heights = [0, ...came.map((/** @type {number[]} */ [, v]) => v), ...means.map((v) => v ?? 0)];
  curve.show({
    ...common,
    range: common.range[0],
    scale: scaleOf(`error curve ${chosen.error}`, [Math.min(...heights), Math.max(...heights)]),
    mean: means.map((v) => v ?? NaN),
    deviation: [],
    other: [],
    unknown: answer.count.map((/** @type {number} */ n) => n === 0),
    came,
    zero: true,
    name: variable(Number(chosen.x)),
    height: ofReward('error'),
  });
}

/** "angle 0.3, speed −2": the variables of the axes first, then the most relevant. @param {{state: number[]}} worst */
function placeWords({ state }) {
  const shown = [...new Set([...axesNow().map(Number), ...ranked()])].slice(0, NAMED);
  return shown.map((k) => `${plain(k)} ${inUnit(k, format(state[k], 3))}`).join(', ');
}

/** The error of the kind that is shown. */
const errorOf = (/** @type {import('./types').Worst} */ { error, td }) => (ofTd() ? td : error);

/** The worst states, each a button that shows the place. */
function worstList() {
  const { rms, chance, states } = ranking();
  $('wrong').hidden = !states.length;
  const single = ofTd() ? 'row' : 'return';
  say(
    $('worst-text'),
    `${chance ? 'The largest mean errors are below four standard errors. ' : ''}` +
      `Each is a mean over ${states[0]?.count ?? 0} neighbouring states: a single ${single} scatters. What two standard errors leave of it ` +
      `ranks it. Over all states the ${ofTd() ? 'reward and next value' : 'returns'} are off by ${inReward(format(rms, 2))} (root mean square).`,
  );
  const worst = states[0];
  say(
    $('worst-plain'),
    chance ? 'Nowhere more than chance.' : worst ? `At ${placeWords(worst)}: ${beside(errorOf(worst))} than predicted.` : '',
  );
  const items = states.map((worst) => {
    const button = el('button', { type: 'button', textContent: placeWords(worst) });
    button.addEventListener('click', () => goTo(worst));
    const error = errorOf(worst);
    return el(
      'li',
      { data: { error } },
      button,
      el('b', { textContent: `${error > 0 ? '▲' : '▼'} ${beside(error)} than predicted` }),
      el('span', { className: 'details', textContent: detail(worst) }),
    );
  });
  list($('worst'), items);
}

/** The scatter is of the kind that is shown; the other kind is named beside it. */
function detail(/** @type {import('./types').Worst} */ { spread, error, td, stream, offset }) {
  const other = ofTd() ? (answer.returns ? ` · error of the return ${inReward(format(error, 2))}` : '') : ` · TD error ${inReward(format(td, 2))}`;
  return `scatter ${inReward(format(spread, 2))}${other}${stream ? ` · ${stream}` : ''}, row ${grouped(offset)}`;
}

/** Put the axes to the variables along which an error is most local, and the sliders to its state, and show the rows around it. */
function goTo(/** @type {import('./types').Worst} */ worst) {
  if (chosen.average) averageOthers(false);
  if (worst.axes.length > 1) chooseAxes(worst.axes[0], worst.axes[1]);
  standAt(worst.state);
  lookBack(worst.stream, worst.offset);
  spot(axesNow().map((k) => worst.state[Number(k)]));
  $('view').scrollIntoView({ behavior: 'auto', block: 'start' });
}

/** The means of the cells as columns; null before there are any. */
export function errorColumns() {
  if (!answer || answer.key !== viewQuery().toString()) return null;
  const ends = new URLSearchParams(answer.key).get('range')?.split(',').map(Number) ?? [];
  const { columns, cell_rows: rows, count, error, td } = answer;
  const centre = (/** @type {number} */ j, /** @type {number} */ k, /** @type {number} */ of) => ends[2 * j] + ((ends[2 * j + 1] - ends[2 * j]) * (k + 0.5)) / of;
  /** @type {Record<string, any>} */
  const out = {};
  axesNow().forEach((axis, j) => {
    out[variable(Number(axis))] = count.map((/** @type {number} */ _, /** @type {number} */ k) => (j ? centre(1, Math.floor(k / columns), rows) : centre(0, k % columns, columns)));
  });
  return { ...out, returns: count, error, td_error: td };
}

/** The worst states in words, for a picture. */
export const worstRows = () =>
  (answer ? ranking().states : []).map((worst) => ({
    words: [placeWords(worst), `${beside(errorOf(worst))} than predicted`, detail(worst)],
  }));

/** The worst states as columns; null before there are any. */
export function worstColumns() {
  const worst = answer ? ranking().states : [];
  if (!worst.length) return null;
  const names = worst[0].state.map((/** @type {number} */ _, /** @type {number} */ k) => variable(k));
  const states = names.map((/** @type {string} */ name, /** @type {number} */ k) => [name, worst.map((/** @type {import('./types').Worst} */ { state }) => state[k])]);
  const rest = ['error', 'spread', 'td', 'count', 'stream', 'offset'];
  return { ...Object.fromEntries(states), ...Object.fromEntries(rest.map((key) => [key, worst.map((/** @type {any} */ each) => each[key])])) };
}

/** The control, once. */
export function buildErrors() {
  $('error-kind', HTMLSelectElement).addEventListener('change', () => {
    chosen.error = $('error-kind', HTMLSelectElement).value;
    note();
    showErrors();
  });
}
