// Where the model is wrong: errors over the axes of the map, and the ten worst states.

import { standAt } from '/axes.js';
import { Field } from '/canvas.js';
import { $, el, list, say } from '/dom.js';
import { HeatMap } from '/heat.js';
import { axesNow, chosen, inUnit, plain, variable } from '/known.js';
import { lookBack } from '/path.js';
import { ranked } from '/relevance.js';
import { scaleOf, spot, viewQuery } from '/value.js';
import { format, grouped } from '/words.js';

/** Milliseconds between two questions under the same axes. */
const EVERY_MS = 5000;
/** Rows shown behind a state, so that what followed it is seen as well. */
const BEHIND = 60;
/** Variables that are named of a state. */
const NAMED = 4;

/** @type {any} */
let answer = null;
let asked = { key: '', at: 0 };
let asking = false;

/** "1.4 higher", with a true word for the sign. @param {number} error */
const beside = (error) => `${format(Math.abs(error), 2)} ${error > 0 ? 'higher' : 'lower'}`;

const map = new HeatMap($('map-error'), 'signed', (at) => {
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
    el('b', { textContent: count ? `${which()} ${beside(at.value)} than predicted` : 'no return is known here' }),
    count ? ` · mean of ${grouped(count)}` : '',
  );
});

const which = () => ($('error-kind').value === 'td' ? 'reward and next value' : 'returns');

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
  const curve = answer.cell_rows === 1;
  $('error-card').hidden = curve || !answer.samples;
  worstList();
  if (curve || !answer.samples) return;
  const values = ($('error-kind').value === 'td' ? answer.td : answer.error).map((v) => v ?? 0);
  const most = Math.max(...values.map(Math.abs), 1e-9);
  const [, end] = scaleOf(`error ${$('error-kind').value}`, [0, most]);
  const numbers = new URLSearchParams(answer.key).get('range')?.split(',').map(Number) ?? [];
  const unknown = answer.count.map((n) => (n ? 0 : 1));
  map.show({
    field: new Field(answer.columns, answer.cell_rows, values),
    fade: new Field(answer.columns, answer.cell_rows, unknown),
    range: [numbers.slice(0, 2), numbers.slice(2)],
    names: axesNow().map((k) => variable(Number(k))),
    scale: [-end, end],
    points: [],
    blocks: true,
    key: `${answer.key} ${$('error-kind').value}`,
    generation: answer.generation,
  });
  say($('error-note'), `mean over ${grouped(answer.samples)} visited states`);
  $('map-error').setAttribute('aria-label', `Errors between −${format(most, 3)} and ${format(most, 3)}, zero in the middle`);
}

/** The worst states, each a button that shows the place. */
function worstList() {
  $('wrong').hidden = !answer.worst.length;
  say(
    $('worst-text'),
    `Each is a mean over ${answer.worst[0]?.count ?? 0} neighbouring states: a single return scatters. Over all states the ` +
      `returns are off by ${format(answer.rms, 2)} (root mean square).`,
  );
  const shown = [...new Set([...axesNow().map(Number), ...ranked()])].slice(0, NAMED);
  const items = answer.worst.map((worst) => {
    const words = shown.map((k) => `${plain(k)} ${inUnit(k, format(worst.state[k], 3))}`).join(', ');
    const button = el('button', { type: 'button', textContent: words });
    button.addEventListener('click', () => goTo(worst));
    const sign = worst.error > 0 ? '▲' : '▼';
    return el(
      'li',
      { data: { error: worst.error } },
      button,
      el('b', { textContent: `${sign} ${beside(worst.error)} than predicted` }),
      el('span', { className: 'details', textContent: detail(worst) }),
    );
  });
  list($('worst'), items);
}

const detail = ({ spread, td, stream, offset }) =>
  `scatter ${format(spread, 2)} · TD error ${format(td, 2)}${stream ? ` · ${stream}` : ''}, row ${grouped(offset)}`;

/** Put axes and sliders at a state, and show the rows around it. */
function goTo(worst) {
  standAt(worst.state);
  lookBack(worst.stream, worst.offset + BEHIND);
  spot(axesNow().map((k) => worst.state[Number(k)]));
  $('view').scrollIntoView({ behavior: 'auto', block: 'start' });
}

/** The means of the cells as columns; null before there are any. */
export function errorColumns() {
  if (!answer || answer.key !== viewQuery().toString()) return null;
  const ends = new URLSearchParams(answer.key).get('range')?.split(',').map(Number) ?? [];
  const { columns, cell_rows: rows, count, error, td } = answer;
  const centre = (j, k, of) => ends[2 * j] + ((ends[2 * j + 1] - ends[2 * j]) * (k + 0.5)) / of;
  /** @type {Record<string, any>} */
  const out = {};
  axesNow().forEach((axis, j) => {
    out[variable(Number(axis))] = count.map((_, k) => (j ? centre(1, Math.floor(k / columns), rows) : centre(0, k % columns, columns)));
  });
  return { ...out, returns: count, error, td_error: td };
}

/** The worst states as columns; null before there are any. */
export function worstColumns() {
  if (!answer?.worst.length) return null;
  const { worst } = answer;
  const names = worst[0].state.map((_, k) => variable(k));
  const states = names.map((name, k) => [name, worst.map(({ state }) => state[k])]);
  const rest = ['error', 'spread', 'td', 'count', 'stream', 'offset'];
  return { ...Object.fromEntries(states), ...Object.fromEntries(rest.map((key) => [key, worst.map((each) => each[key])])) };
}

/** The control, once. */
export function buildErrors() {
  $('error-kind').addEventListener('change', showErrors);
}
