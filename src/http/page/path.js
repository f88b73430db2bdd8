// The value along the trajectory of one stream: what was predicted, what came, and where an episode ended.

import { rangeOf } from '/axes.js';
import { Picture, context, frame, inks, mix, text } from '/canvas.js';
import { $, el, say } from '/dom.js';
import { period } from '/kernel.js';
import { axesNow, chosen, critic, inUnit, known, plain, variable } from '/known.js';
import { onPointing, overlay, spot } from '/value.js';
import { format, grouped, round, ticks } from '/words.js';

/** Rows that may be looked back on, and how many of them the map shows. */
const LENGTHS = [100, 400, 1600];
const MAP_ROWS = 60;
/** Pixels from a trajectory within which the pointer on the map finds it. */
const NEAR = 14;
/** Ends of episodes beyond which only some are marked, without a line through the picture. */
const ENDS_LINED = 60;
/** Milliseconds between two questions: the daemon answers within a small share of its time. */
const EVERY_MS = 1500;

/** The stream that is followed, the newest where none is chosen; up to which row; how many rows. */
const wanted = { /** @type {?string} */ stream: null, /** @type {?number} */ until: null, rows: 400 };

/** @type {any} */
let path = null;
let asked = 0;
let asking = false;

/** Value with its band above, rewards below. */
class Strip extends Picture {
  /** Show the answer of the daemon. @param {any} next */
  show(next) {
    this.next = next;
    this.draw();
  }

  /** Row k of the answer that the pointer is at, or that is pointed out on the map. @type {?number} */
  marked = null;

  paint() {
    const drawn = context(this.canvas);
    if (!drawn || !this.next?.offset.length) return;
    const { c, width, height } = drawn;
    const { offset, value, deviation, realised, reward } = this.next;
    // Rows of this stream alone, counted back from the last one.
    const first = Math.min(1 - this.next.rows, -1);
    const row = (k) => (offset.length > 1 ? first * (1 - k / (offset.length - 1)) : 0);
    const scale = heights(this.next);
    const yTicks = ticks(scale[0], scale[1], Math.max(3, height / 60));
    const widest = Math.max(...yTicks.map(([, words]) => c.measureText(words).width), 20);
    const lane = 34;
    const plot = { left: widest + 30, top: 8, right: width - 8, bottom: height - 34 - lane };
    const x = (v) => mix(plot.left, plot.right, 1 - v / first);
    const y = (v) => mix(plot.bottom, plot.top, (v - scale[0]) / (scale[1] - scale[0]));
    const xTicks = ticks(first, 0, Math.max(3, width / 130)).filter(([v]) => Number.isInteger(v));
    frame(c, plot, [], yTicks, x, y);
    for (const [v] of xTicks) text(c, grouped(v), x(v), height - 16, v === 0 ? 'right' : 'center', 'bottom');
    text(c, 'rows before the last', (plot.left + plot.right) / 2, height - 1, 'center', 'bottom', inks.ink);
    c.save();
    c.translate(8, (plot.top + plot.bottom) / 2);
    c.rotate(-Math.PI / 2);
    text(c, 'value', 0, 0, 'center', 'middle', inks.ink);
    c.restore();
    const places = offset.map((_, k) => x(row(k)));
    for (const [from, to] of pieces(this.next)) {
      band(c, places, value, deviation, [from, to], y);
      line(c, places, value, [from, to], y, inks.accent, 2, []);
      line(c, places, realised, [from, to], y, inks.second, 1.4, [4, 3]);
    }
    this.rewards(c, plot, places, reward, lane);
    this.ends(c, plot, places);
    this.hover(c, plot, places, y);
  }

  /** Rewards as bars in a lane of their own, about zero. */
  rewards(c, plot, places, reward, lane) {
    const most = Math.max(...reward.map(Math.abs), 1e-12);
    const middle = plot.bottom + 4 + lane / 2;
    c.fillStyle = inks.grid;
    c.fillRect(plot.left, middle, plot.right - plot.left, 1);
    c.fillStyle = inks.soft;
    const wide = Math.max(1, (plot.right - plot.left) / places.length - 1);
    reward.forEach((r, k) => {
      const tall = (r / most) * (lane / 2 - 2);
      c.fillRect(places[k] - wide / 2, Math.min(middle, middle - tall), wide, Math.max(Math.abs(tall), 0.5));
    });
    text(c, 'reward', plot.left - 6, middle, 'right');
  }

  /** Where episodes ended: a filled square where they terminated, a hollow one where they were cut off. */
  ends(c, plot, places) {
    // Where every other row ends an episode, marks would hide the values.
    const lined = this.next.end.filter(Boolean).length <= ENDS_LINED;
    this.next.end.forEach((end, k) => {
      if (!end || !(lined || k % 10 === 0)) return;
      c.strokeStyle = inks.soft;
      c.fillStyle = end === 1 ? inks.ink : inks.card;
      c.lineWidth = 1.2;
      if (lined) {
        c.globalAlpha = 0.5;
        c.beginPath();
        c.moveTo(places[k], plot.top);
        c.lineTo(places[k], plot.bottom);
        c.stroke();
        c.globalAlpha = 1;
      }
      c.beginPath();
      c.rect(places[k] - 3, plot.top - 3, 6, 6);
      c.fill();
      c.stroke();
    });
  }

  hover(c, plot, places, y) {
    if (this.pointer) {
      const px = this.pointer[0];
      let best = 0;
      places.forEach((place, k) => {
        if (Math.abs(place - px) < Math.abs(places[best] - px)) best = k;
      });
      this.marked = best;
    }
    const k = this.marked;
    if (k !== null && k < places.length) {
      c.fillStyle = inks.warn;
      c.fillRect(places[k] - 0.75, plot.top, 1.5, plot.bottom - plot.top);
      c.beginPath();
      c.arc(places[k], y(this.next.value[k]), 4, 0, 7);
      c.fill();
    }
    this.say(k);
  }
}

/** Unbroken runs [from, to] of rows: an episode that ends, or a chain that begins, breaks them. */
function pieces({ end, starts }) {
  /** @type {number[][]} */
  const out = [];
  let from = 0;
  for (let k = 0; k < end.length; k += 1) {
    const breaks = end[k] !== 0 || k + 1 === end.length || starts[k + 1];
    if (!breaks) continue;
    out.push([from, k]);
    from = k + 1;
  }
  return out;
}

/** The ends of the axis: everything that is drawn, in round numbers that only change when it no longer fits. */
let kept = { key: '', scale: [0, 1] };

function heights({ value, deviation, realised, stream, critic: name }) {
  const all = value.flatMap((v, k) => [v - 2 * (deviation[k] ?? 0), v + 2 * (deviation[k] ?? 0), realised[k] ?? v]);
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const key = `${name} ${stream} ${wanted.rows}`;
  const fits = kept.key === key && kept.scale[0] <= low && high <= kept.scale[1];
  if (!fits || high - low < 0.4 * (kept.scale[1] - kept.scale[0])) kept = { key, scale: round([low, high], 5) };
  return kept.scale;
}

/** Two standard deviations about the value. */
function band(c, places, value, deviation, [from, to], y) {
  if (deviation[from] === null) return;
  if (from === to) {
    // An episode of one row.
    c.fillStyle = inks['accent-soft'];
    c.fillRect(places[from] - 2, y(value[from] + 2 * deviation[from]), 4, y(-2 * deviation[from]) - y(2 * deviation[from]));
    return;
  }
  c.beginPath();
  for (let k = from; k <= to; k += 1) c.lineTo(places[k], y(value[k] + 2 * deviation[k]));
  for (let k = to; k >= from; k -= 1) c.lineTo(places[k], y(value[k] - 2 * deviation[k]));
  c.fillStyle = inks['accent-soft'];
  c.fill();
}

function line(c, places, values, [from, to], y, colour, wide, dashes) {
  if (from === to && values[from] !== null) {
    // One row is a dot: hollow where a line would be dashed.
    c.beginPath();
    c.arc(places[from], y(values[from]), dashes.length ? 2.6 : 1.8, 0, 7);
    c.fillStyle = colour;
    c.strokeStyle = colour;
    c.lineWidth = 1;
    if (dashes.length) c.stroke();
    else c.fill();
    return;
  }
  c.beginPath();
  let running = false;
  for (let k = from; k <= to; k += 1) {
    if (values[k] === null) {
      running = false;
      continue;
    }
    if (running) c.lineTo(places[k], y(values[k]));
    else c.moveTo(places[k], y(values[k]));
    running = true;
  }
  c.strokeStyle = colour;
  c.lineWidth = wide;
  c.setLineDash(dashes);
  c.stroke();
  c.setLineDash([]);
}

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
  const came = path.realised[k] === null ? 'return not known yet' : `return ${format(path.realised[k])}`;
  $('path-out').replaceChildren(
    `row ${grouped(path.offset[k])}, ${place.join(', ')}: `,
    el('b', { textContent: `value ${format(path.value[k])} ± ${format(2 * path.deviation[k], 2)}` }),
    ` · ${came} · reward ${format(path.reward[k], 3)} · TD error ${format(path.td[k], 2)}${ends}`,
  );
  spot(path.at[k]);
});
$('path').addEventListener('pointerleave', () => {
  strip.marked = null;
  strip.draw();
});
$('path').addEventListener('keydown', (e) => {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
  if (!by || !path) return;
  e.preventDefault();
  e.stopImmediatePropagation();
  strip.pointer = null;
  fromMap = false;
  strip.marked = Math.min(Math.max((strip.marked ?? path.offset.length) + by, 0), path.offset.length - 1);
  strip.draw();
});

/** Whether the marked row is one that the pointer on the map has found. */
let fromMap = false;

// From the map to the strip.
onPointing((at) => {
  if (!path || !at) {
    if (fromMap) {
      fromMap = false;
      strip.marked = null;
      strip.draw();
    }
    return;
  }
  const reach = NEAR * at.reach;
  let [best, away] = [-1, 1];
  path.at.forEach((place, k) => {
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
  if (asking || document.hidden || chosen.x === null || $('trajectory').hidden) return;
  if (!now && Date.now() - asked < EVERY_MS) return;
  asking = true;
  asked = Date.now();
  const query = new URLSearchParams({
    critic: critic().name,
    head: String(chosen.head),
    rows: String(wanted.rows),
    x: String(chosen.x),
  });
  if (chosen.y !== null) query.set('y', String(chosen.y));
  if (wanted.stream !== null) query.set('stream', wanted.stream);
  if (wanted.until !== null) query.set('until', String(wanted.until));
  try {
    const reply = await fetch(`/api/path?${query}`);
    if (reply.ok) {
      path = await reply.json();
      shown();
    } else if (reply.status === 400) {
      say($('path-note'), (await reply.text()).trim());
    }
  } catch {
    /* the event stream says that the daemon is away */
  }
  asking = false;
}

function shown() {
  say($('path-note'), noteOf(path));
  strip.show(path);
  $('path').setAttribute('aria-label', `Value along the trajectory: ${$('path-note').textContent}`);
  const from = Math.max(0, path.offset.length - MAP_ROWS);
  const lines = pieces(path)
    .filter(([, to]) => to >= from)
    .map(([begin, to]) => path.at.slice(Math.max(begin, from), to + 1));
  const came = path.at.map(([v], k) => [v, path.realised[k]]).filter(([, v]) => v !== null);
  overlay(lines.flatMap(unbroken), came);
}

/**
 * The parts of a line between which no variable leaps: an angle that wraps, or a reset that is not marked, is no way across the
 * picture.
 * @param {number[][]} line
 */
export function unbroken(line) {
  const spans = axesNow().map((k) => {
    const [low, high] = rangeOf(k);
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

function noteOf({ stream, rows, every, realised, offset }) {
  const known_ = realised.filter((v) => v !== null).length;
  const thinned = every > 1 ? `, one in ${every} drawn` : '';
  const back = wanted.until === null ? '' : ` up to row ${grouped(wanted.until)}`;
  return `${grouped(rows)} rows of ${stream ?? 'the newest stream'}${back}${thinned}; the return is known of ${Math.round((100 * known_) / Math.max(offset.length, 1))} %`;
}

/** Streams to choose from. */
export function pathChoices() {
  const names = Object.keys(known.status?.recent_streams ?? {}).sort();
  const key = names.join('\n');
  const select = $('path-stream');
  if (select.dataset.names !== key) {
    select.dataset.names = key;
    select.replaceChildren(
      el('option', { value: '', textContent: 'the newest' }),
      ...names.map((name) => el('option', { value: `=${name}`, textContent: name })),
    );
    if (wanted.stream !== null && !names.includes(wanted.stream)) wanted.stream = null;
    select.value = wanted.stream === null ? '' : `=${wanted.stream}`;
  }
  $('path-live').hidden = wanted.until === null;
}

/** Show the rows of a stream up to one of them. @param {?string} stream @param {?number} until */
export function lookBack(stream, until) {
  Object.assign(wanted, { stream, until });
  $('path-stream').value = stream === null ? '' : `=${stream}`;
  $('path-live').hidden = until === null;
  follow(true);
}

/** The controls, once. */
export function buildPath() {
  $('path-rows').replaceChildren(
    ...LENGTHS.map((rows) => el('option', { value: rows, textContent: grouped(rows), selected: rows === wanted.rows })),
  );
  $('path-rows').addEventListener('change', () => {
    wanted.rows = Number($('path-rows').value);
    follow(true);
  });
  $('path-stream').addEventListener('change', () => {
    const { value } = $('path-stream');
    lookBack(value === '' ? null : value.slice(1), null);
  });
  $('path-live').addEventListener('click', () => lookBack(wanted.stream, null));
  $('show-path').addEventListener('change', () => path && shown());
}

/** What is drawn as columns; null before there is any. */
export function pathColumns() {
  if (!path) return null;
  const { offset, at, value, deviation, return_deviation, realised, reward, td, end } = path;
  /** @type {Record<string, any[]>} */
  const out = { offset };
  [chosen.x, chosen.y].forEach((k, j) => {
    if (k !== null) out[variable(k)] = at.map((place) => place[j]);
  });
  const ended = end.map((/** @type {number} */ k) => ['', 'terminated', 'truncated'][k]);
  return { ...out, value, deviation, return_deviation, return: realised, reward, td_error: td, end: ended };
}
