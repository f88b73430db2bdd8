// The value along the trajectory of one stream: what was predicted, what came, and where an episode ended.

import { ofActions } from '/actions.js';
import { addressedLast, addressedRow, addressedStream, noteStream } from '/address.js';
import { wholeOf } from '/axes.js';
import { $, el, say } from '/dom.js';
import { period } from '/kernel.js';
import { axesNow, chosen, critic, inReward, inUnit, known, plain, variable } from '/known.js';
import { Strip } from '/strip.js';
import { onPointing, overlay, spot } from '/value.js';
import { duration, format, grouped } from '/words.js';

/** What may be looked back on, in seconds or rows; the first leaves the seconds to the daemon, by the rate. @type {[string, string][]} */
const LENGTHS = [
  ['automatic', 'automatic'],
  ['60s', '1 min'],
  ['300s', '5 min'],
  ['900s', '15 min'],
  ['100', '100 rows'],
  ['400', '400 rows'],
  ['1600', '1 600 rows'],
];
/** Rows shown where nothing says when they came, as before a restart. */
const ROWS_ELSE = 400;
/** Rows shown behind the row that is looked back on. */
const BEHIND = 60;
/** Pixels from a trajectory within which the pointer on the map finds it. */
const NEAR = 14;
/** Milliseconds between two questions: the daemon answers within a small share of its time. */
const EVERY_MS = 1500;

/**
 * The stream that is followed, else the newest until it falls silent; the row that is looked back on, else the newest; how much is
 * shown; the stream to return to.
 * @type {{stream: ?string, until: ?number, span: string, home: ?string}}
 */
const wanted = { stream: addressedStream(), until: addressedRow(), span: LENGTHS.find(([value]) => value === addressedLast())?.[0] ?? LENGTHS[0][0], home: null };

/** @type {any} */
let path = null;
let asked = 0;
let asking = false;
/** Whether the reader has asked for something else meanwhile. */
let again = false;

/** Row of the answer that was announced last, which need not be announced again. @type {?number} */
let announced = null;

const strip = new Strip($('path'), (k) => {
  if (k === announced && k === null) return;
  announced = k;
  if (k === null || !path) {
    $('path-out').replaceChildren();
    spot(null);
    return;
  }
  const place = [chosen.x, chosen.y]
    .filter((axis) => axis !== null)
    .map((axis, j) => `${plain(Number(axis))} ${inUnit(Number(axis), format(path.at[k][j], 3))}`);
  const ends = ['', ' · the episode terminated', ' · the episode was cut off'][path.end[k]];
  const came = !path.returns ? '' : path.realised[k] === null ? ' · return not known yet' : ` · return ${inReward(format(path.realised[k]))}`;
  $('path-out').replaceChildren(
    `row ${grouped(path.offset[k])}, ${place.join(', ')}: `,
    el('b', { textContent: `${ofActions() ? 'Q' : 'value'} ${inReward(`${format(path.value[k])} ± ${format(2 * path.deviation[k], 2)}`)} (2 std)` }),
    `${came} · reward ${inReward(format(path.reward[k], 3))} · TD error ${inReward(format(path.td[k], 2))}${ends}`,
  );
  spot(path.at[k]);
});
$('path').addEventListener('pointermove', () => (keyed = null));
$('path').addEventListener('pointerleave', () => {
  keyed = null;
  strip.marked = path?.pinned ?? null;
  strip.draw();
});
$('path').addEventListener('keydown', (/** @type {KeyboardEvent} */ e) => {
  const by = e.key === 'ArrowLeft' ? -1 : e.key === 'ArrowRight' ? 1 : 0;
  if (!by || !path) return;
  e.preventDefault();
  e.stopImmediatePropagation();
  strip.pointer = null;
  fromMap = false;
  strip.marked = Math.min(Math.max((strip.marked ?? path.offset.length) + by, 0), path.offset.length - 1);
  keyed = path.offset[strip.marked];
  strip.draw();
});

/** Whether the marked row is one that the pointer on the map has found. */
let fromMap = false;
/** Row that keys have led to: it stays marked when others come. @type {?number} */
let keyed = null;

// From the map to the strip. One drawn again tells where the pointer rests: only what moves frees the row of the keys.
for (const moves of ['pointermove', 'pointerdown', 'keydown']) $('map-value').addEventListener(moves, () => (keyed = null), true);
onPointing((at) => {
  if (keyed !== null) return;
  if (!path || !at) {
    if (fromMap) {
      fromMap = false;
      strip.marked = path?.pinned ?? null;
      strip.draw();
    }
    return;
  }
  const reach = NEAR * at.reach;
  let [best, away] = [-1, 1];
  path.at.forEach((/** @type {number[]} */ place, /** @type {number} */ k) => {
    // The other axis has pixels of another size: its share of the picture counts.
    const across = (place[0] - at.place[0]) / reach;
    const up = place.length > 1 ? (place[1] - at.place[1]) / (NEAR * (at.reachUp ?? at.reach)) : 0;
    const distance = across ** 2 + up ** 2;
    if (distance < away) [best, away] = [k, distance];
  });
  const found = best < 0 ? null : best;
  if (found === strip.marked) return;
  fromMap = true;
  strip.marked = found;
  strip.draw();
});

/** Ask for the trajectory where it may have changed. @param {boolean} [now] whether the reader waits for it */
export async function follow(now = false) {
  if (document.hidden || chosen.x === null || $('trajectory').hidden) return;
  if (asking) {
    again ||= now;
    return;
  }
  if (!now && Date.now() - asked < EVERY_MS) return;
  asking = true;
  asked = Date.now();
  const { span } = wanted;
  const query = new URLSearchParams({
    critic: critic().name,
    head: String(chosen.head),
    rows: /^\d+$/.test(span) ? span : String(ROWS_ELSE),
    x: String(chosen.x),
  });
  if (span === 'automatic') query.set('automatic', 'true');
  else if (span.endsWith('s')) query.set('seconds', span.slice(0, -1));
  if (chosen.y !== null) query.set('y', String(chosen.y));
  if (wanted.stream !== null) query.set('stream', wanted.stream);
  else if (path?.stream) query.set('follow', path.stream);
  const { until } = wanted;
  if (until !== null) {
    query.set('until', String(until));
    query.set('behind', String(BEHIND));
  }
  try {
    const reply = await fetch(`/api/path?${query}`);
    if (reply.ok) {
      const before = path?.stream;
      path = { ...(await reply.json()), wanted: span, pinned: null };
      if (path.stream !== before) keyed = null;
      if (until !== null) path.pinned = Math.max(path.offset.findLastIndex((/** @type {number} */ row) => row <= until), 0);
      shown();
    } else if (reply.status === 400) {
      say($('path-note'), (await reply.text()).trim());
    }
  } catch {
    /* the event stream says that the daemon is away */
  }
  asking = false;
  if (again) {
    again = false;
    follow(true);
  }
}

/** The row that is marked, else the newest that is shown; null before there is one. @returns {?number} */
export const markedRow = () => path?.offset[strip.marked ?? path.offset.length - 1] ?? null;

/** The stream that is shown; null before there is one. @returns {?string} */
export const shownStream = () => path?.stream ?? null;

function shown() {
  say($('path-note'), noteOf(path));
  say($('path-of'), ofActions() ? 'Q of the action taken' : 'value');
  $('path-came').hidden = !path.returns;
  const from = keyed;
  const stays = from === null ? -1 : path.offset.findLastIndex((/** @type {number} */ row) => row <= from);
  if (stays < 0) keyed = null;
  if (!strip.pointer && !fromMap) strip.marked = stays < 0 ? path.pinned : stays;
  strip.show(path);
  $('path-failure', HTMLButtonElement).disabled = path.last_terminated === null;
  $('path').setAttribute('aria-label', `Value along the trajectory: ${$('path-note').textContent}`);
  const came = path.at.map((/** @type {any[]} */ [v], /** @type {number} */ k) => [v, path.realised[k]]).filter((/** @type {any[]} */ [, v]) => v !== null);
  // Rows one by one: points of a thinned trajectory may be far apart.
  // On the map of actions is the value of the best one.
  overlay(path.lines.flatMap(unbroken), ofActions() ? [] : came);
}

/**
 * The parts of a line between which no variable leaps: an angle that wraps, or a reset that is not marked, is no way across the
 * picture.
 * @param {number[][]} line
 */
export function unbroken(line) {
  const spans = axesNow().map((k) => {
    const [low, high] = wholeOf(Number(k));
    return Math.min(high - low, period(Number(k)));
  });
  /** @type {number[][][]} */
  const parts = [[]];
  line.forEach((place, k) => {
    const leaps = k > 0 && place.some((v, j) => Math.abs(v - line[k - 1][j]) > spans[j] / 2);
    if (leaps) parts.push([]);
    parts[parts.length - 1].push(place);
  });
  return parts;
}

function noteOf(/** @type {import('./types').Path} */ { stream, rows, every, realised, offset, seconds, returns }) {
  const known_ = realised.filter((/** @type {?number} */ v) => v !== null).length;
  const thinned = every > 1 ? `, ${seconds ? `a point for about ${every}` : `one in ${every} drawn`}` : '';
  const back = wanted.until === null ? '' : ` about row ${grouped(wanted.until)}`;
  const lasting = seconds && seconds[0] <= -1 ? ` in ${duration(-seconds[0])}` : '';
  return `${grouped(rows)} rows of ${stream ?? 'the newest stream'}${lasting}${back}${thinned}${returns ? `; the return is known of ${Math.round((100 * known_) / Math.max(offset.length, 1))} %` : ''}`;
}

/** Streams to choose from. */
export function pathChoices() {
  // The status names those that sent last: one that was chosen stays.
  const listed = new Set(Object.keys(known.status?.recent_streams ?? {}));
  if (wanted.stream !== null) listed.add(wanted.stream);
  const names = [...listed].sort();
  const key = names.join('\n');
  const select = $('path-stream', HTMLSelectElement);
  if (select.dataset.names !== key) {
    select.dataset.names = key;
    select.replaceChildren(
      el('option', { value: '', textContent: 'the newest, until it falls silent' }),
      ...names.map((name) => el('option', { value: `=${name}`, textContent: name })),
    );
    select.value = wanted.stream === null ? '' : `=${wanted.stream}`;
  }
  $('path-live', HTMLButtonElement).hidden = wanted.until === null;
}

/** Show a row of a stream with those around it, or its newest rows. @param {?string} stream @param {?number} until */
export function lookBack(stream, until) {
  if (until !== null && wanted.until === null) wanted.home = wanted.stream;
  Object.assign(wanted, { stream, until });
  keyed = null;
  noteStream(stream, until, wanted.span);
  $('path-stream', HTMLSelectElement).value = stream === null ? '' : `=${stream}`;
  $('path-live', HTMLButtonElement).hidden = until === null;
  follow(true);
}

/** The controls, once. */
export function buildPath() {
  $('path-rows', HTMLSelectElement).replaceChildren(
    ...LENGTHS.map(([value, words]) => el('option', { value, textContent: words })),
  );
  $('path-rows', HTMLSelectElement).value = wanted.span;
  $('path-rows', HTMLSelectElement).addEventListener('change', () => {
    wanted.span = $('path-rows', HTMLSelectElement).value;
    noteStream(wanted.stream, wanted.until, wanted.span);
    follow(true);
  });
  $('path-stream', HTMLSelectElement).addEventListener('change', () => {
    const { value } = $('path-stream', HTMLSelectElement);
    lookBack(value === '' ? null : value.slice(1), null);
  });
  $('path-failure', HTMLButtonElement).addEventListener('click', () => path?.last_terminated != null && lookBack(path.stream, path.last_terminated));
  $('path-live', HTMLButtonElement).addEventListener('click', () => lookBack(wanted.home, null));
  $('show-path', HTMLInputElement).addEventListener('change', () => path && shown());
}

/** What is drawn as columns; null before there is any. */
export function pathColumns() {
  if (!path) return null;
  const { offset, seconds, at, value, deviation, return_deviation, realised, reward, td, end } = path;
  /** @type {Record<string, any[]>} */
  const out = seconds ? { offset, seconds } : { offset };
  [chosen.x, chosen.y].forEach((k, j) => {
    if (k !== null) out[variable(k)] = at.map((/** @type {number[]} */ place) => place[j]);
  });
  const ended = end.map((/** @type {number} */ k) => ['', 'terminated', 'truncated'][k]);
  return { ...out, value, deviation, return_deviation, return: realised, reward, td_error: td, end: ended };
}
