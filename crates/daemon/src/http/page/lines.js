// Numbers over time.

import { context, inks, mix, text } from '/canvas.js';
import { duration, round, ticks } from '/words.js';

/**
 * Numbers over time. `lines`: [{values, colour, thin?, name?}], a thin one dashed; times: rising; span [from, to]; marks [{time, kind}]; at: the
 * time under the pointer, or null; zero: whether the axis begins there; limit: a level drawn faintly, or null; key: what it is about.
 * @param {any} canvas
 * @param {any} what
 */
export function timeline(canvas, { lines, times, span, marks, at, zero, limit, around, key }) {
  const drawn = context(canvas);
  if (!drawn) return;
  const { c, width, height } = drawn;
  const [from, to] = span;
  let low = Infinity;
  let high = -Infinity;
  const first = times.findIndex((/** @type {number} */ t) => t >= from);
  for (const { values } of lines) {
    for (let k = Math.max(first, 0); first >= 0 && k < values.length; k += 1) {
      if (values[k] === null || times[k] > to) continue;
      low = Math.min(low, values[k]);
      high = Math.max(high, values[k]);
    }
  }
  // Above the plot is a lane for marks.
  const plot = { left: 4, top: 14, right: width - 4, bottom: height - 17 };
  const x = (/** @type {number} */ t) => mix(plot.left, plot.right, (t - from) / (to - from));
  c.fillStyle = inks.grid;
  c.fillRect(plot.left, plot.bottom, plot.right - plot.left, 1);
  if (low <= high) {
    if (limit !== null && limit !== undefined && around) [low, high] = [Math.min(low, limit), Math.max(high, limit)];
    if (zero) [low, high] = [Math.min(0, low), high === 0 ? 1 : high];
    [low, high] = steady(canvas, key, [low, high]);
    const y = (/** @type {number} */ v) => mix(plot.bottom, plot.top, (v - low) / (high - low));
    const levels = ticks(low, high, 2);
    c.fillStyle = inks.grid;
    for (const [v] of levels) c.fillRect(plot.left, Math.round(y(v)), plot.right - plot.left, 1);
    if (limit !== null && limit !== undefined && limit <= high) {
      c.fillStyle = inks.soft;
      c.globalAlpha = 0.5;
      c.fillRect(plot.left, Math.round(y(limit)), plot.right - plot.left, 1);
      c.globalAlpha = 1;
    }
    drawMarks(c, plot, x, marks, span);
    for (const { values, colour, thin } of lines) {
      c.beginPath();
      let running = false;
      let reached = -Infinity;
      for (let k = Math.max(0, first - 1); k < values.length && times[k] <= to; k += 1) {
        if (values[k] === null) {
          running = false;
          continue;
        }
        // A point in each half pixel is enough.
        const place = x(times[k]);
        if (running && place - reached < 0.5 && k + 1 < values.length) continue;
        reached = place;
        if (running) c.lineTo(place, y(values[k]));
        else c.moveTo(place, y(values[k]));
        running = true;
      }
      c.strokeStyle = inks[colour];
      c.lineWidth = thin ? 1.2 : 1.6;
      c.setLineDash(thin ? [4, 3] : []);
      c.stroke();
      c.setLineDash([]);
    }
    names(c, plot, lines, y);
    const texts = levels.filter((_, k) => k === 0 || k === levels.length - 1);
    for (const [v, words] of texts) {
      const below = y(v) - plot.top < 14;
      const at = y(v) + (below ? 3 : -2);
      blank(c, plot.left - 1, below ? at : at - LABEL, c.measureText(words).width + 3);
      text(c, words, plot.left, at, 'left', below ? 'top' : 'bottom');
    }
  } else {
    drawMarks(c, plot, x, marks, span);
    text(c, 'nothing yet', width / 2, (plot.top + plot.bottom) / 2, 'center');
  }
  const ago = (/** @type {number} */ seconds) => (seconds < 1 ? 'now' : `−${duration(seconds).replace(/ 0 (s|min)$/, '')}`);
  text(c, ago(to - from), plot.left, height - 1, 'left', 'bottom');
  text(c, 'now', plot.right, height - 1, 'right', 'bottom');
  if (at !== null && at >= from && at <= to) {
    c.fillStyle = inks.ink;
    c.globalAlpha = 0.6;
    c.fillRect(Math.round(x(at)), plot.top - 6, 1, plot.bottom - plot.top + 6);
    c.globalAlpha = 1;
  }
}

/** The range of each picture, and what it is about. @type {WeakMap<any, {key: string, range: number[]}>} */
const ranges = new WeakMap();

/** Round numbers around what is shown, which stay while they hold it and it takes more than two fifths of them. @param {any} canvas @param {string} key @param {number[]} ends */
export function steady(canvas, key, [low, high]) {
  const now = ranges.get(canvas);
  const [least, most] = now?.range ?? [0, 0];
  const stays = now?.key === key && least <= low && high <= most && high - low > 0.4 * (most - least);
  if (now && stays) return now.range;
  const range = round([low, high], 3);
  ranges.set(canvas, { key, range });
  return range;
}

/**
 * What each of several lines is called, at its end: colours and dashes alone need a legend.
 * @param {CanvasRenderingContext2D} c
 * @param {import('./types').Plot} plot
 * @param {any[]} lines
 * @param {import('./types').Scale} y
 */
function names(c, plot, lines, y) {
  const ends = lines
    .map(({ values, colour, name }) => ({ colour, name, value: values.findLast((/** @type {?number} */ v) => v !== null) }))
    .filter(({ name, value }) => name && value !== undefined)
    .sort((a, b) => b.value - a.value);
  let above = -Infinity;
  ends.forEach(({ colour, name, value }, k) => {
    // The upper one above its line, the lower one below, and no two on each other.
    const wanted = y(value) + (k === 0 ? -8 : 9);
    const left = LABEL * (ends.length - 1 - k);
    const at = Math.max(Math.min(wanted, plot.bottom - 6 - left), plot.top + 6, above + LABEL);
    above = at;
    const wide = c.measureText(name).width + 6;
    blank(c, plot.right - wide, at - LABEL / 2, wide);
    text(c, name, plot.right - 2, at, 'right', 'middle', inks[colour]);
  });
}

/** Pixels between the names of two lines. */
const LABEL = 13;

/** Room for words. @param {CanvasRenderingContext2D} c @param {number} left @param {number} top @param {number} wide */
function blank(c, left, top, wide) {
  c.fillStyle = inks.card;
  c.globalAlpha = 0.85;
  c.fillRect(left, top, wide, LABEL);
  c.globalAlpha = 1;
}

/** Lines through a plot, beyond which marks keep to the lane above it. */
const LINES_MAX = 12;

/**
 * Adoptions and changes of the world as lines through the plot, rejections in the lane above it only: there may be many.
 * @param {CanvasRenderingContext2D} c
 * @param {import('./types').Plot} plot
 * @param {import('./types').Scale} x
 * @param {import('./types').Drawn[]} marks
 * @param {number[]} range
 */
function drawMarks(c, plot, x, marks, [from, to]) {
  const within = marks.filter((/** @type {import('./types').Drawn} */ { time, kind }) => time >= from && time <= to && kind !== 'rejected');
  const through = (/** @type {string} */ kind) => kind === 'drift' || (kind !== 'rejected' && within.length <= LINES_MAX);
  for (const { time, kind } of [...marks].sort((a, b) => (a.kind < b.kind ? 1 : -1))) {
    if (time < from || time > to) continue;
    const at = Math.round(x(time)) + 0.5;
    const ink = kind === 'drift' ? inks.warn : inks.second;
    c.strokeStyle = ink;
    c.lineWidth = 1;
    if (through(kind)) {
      c.globalAlpha = 0.8;
      c.beginPath();
      c.moveTo(at, plot.top - 7);
      c.lineTo(at, plot.bottom);
      c.stroke();
      c.globalAlpha = 1;
    }
    c.beginPath();
    // Shapes beside colours: a change of the world is a square.
    if (kind === 'drift') c.rect(at - 3, plot.top - 11, 6, 6);
    else c.arc(at, plot.top - 8, kind === 'adopted' ? 3.2 : 2.4, 0, 7);
    c.fillStyle = kind === 'rejected' ? inks.card : ink;
    c.fill();
    c.lineWidth = 1.2;
    c.stroke();
  }
}

/**
 * The time at a place of a time line's canvas.
 * @param {HTMLCanvasElement} canvas
 * @param {number} offset
 * @param {number[]} range
 */
export function timeAt(canvas, offset, [from, to]) {
  return mix(from, to, Math.min(Math.max((offset - 4) / (canvas.clientWidth - 8), 0), 1));
}
