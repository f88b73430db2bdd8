// The strip of a trajectory: the value with its band above, rewards below, and where episodes ended.

import { Picture, context, frame, inks, mix, text, upright } from '/canvas.js';
import { chosen, ofReward, rewardName } from '/known.js';
import { steady } from '/lines.js';
import { format, grouped, round, ticks } from '/words.js';

/** Ends of episodes beyond which only some are marked, without a line through the picture. */
const ENDS_LINED = 60;
/** Seconds from which on the axis counts minutes. */
const MINUTES = 180;
/** Nothing has come where two rows are this number of seconds apart, this share of what is shown, and this multiple of the usual step. */
const SILENT_S = 2;
const SILENT_SHARE = 0.05;
const SILENT_STEPS = 5;

/** Pixels that the name of a reward may take, and by which it and the ends of its lane stand apart from the middle. */
const LABEL = 110;
const APART = 7;
/** What the scale of the lane of rewards is kept under. */
const LANE = {};

/** Value with its band above, rewards below. */
export class Strip extends Picture {
  /** Show the answer of the daemon, `wanted` (how much was asked for) and the number of the `pinned` row, or null. @param {any} next */
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
    const { offset, value, deviation, realised, reward, seconds } = this.next;
    // By time where it is known when rows came; else rows of this stream alone, counted back from the last one.
    const minutes = seconds && seconds[0] < -MINUTES;
    const first = seconds ? Math.min(seconds[0], -0.001) / (minutes ? 60 : 1) : Math.min(1 - this.next.rows, -1);
    const row = (/** @type {number} */ k) =>
      seconds ? seconds[k] / (minutes ? 60 : 1) : offset.length > 1 ? first * (1 - k / (offset.length - 1)) : 0;
    const axis = seconds ? `${minutes ? 'minutes' : 'seconds'} before the last row` : 'rows before the last';
    const scale = heights(this.next);
    const yTicks = ticks(scale[0], scale[1], Math.max(3, height / 60));
    const widest = Math.max(...yTicks.map(([, words]) => c.measureText(words).width), 20);
    const lane = 34;
    // Its name stands before the lane of rewards if there is room.
    const named = rewardName() ?? '';
    const label = named && c.measureText(named).width < LABEL ? named : ofReward('reward');
    const most = tallest(this.next);
    const ends = `${format(-most, 2)} to ${format(most, 2)}`;
    const wide = Math.max(...[label, ends].map((words) => c.measureText(words).width));
    const plot = { left: Math.max(widest + 30, wide + 8), top: 8, right: width - 8, bottom: height - 34 - lane };
    const x = (/** @type {number} */ v) => mix(plot.left, plot.right, 1 - v / first);
    const y = (/** @type {number} */ v) => mix(plot.bottom, plot.top, (v - scale[0]) / (scale[1] - scale[0]));
    const xTicks = ticks(first, 0, Math.max(3, width / 130)).filter(([v]) => seconds || Number.isInteger(v));
    frame(c, plot, [], yTicks, x, y);
    for (const [v, words] of xTicks)
      text(c, seconds ? words : grouped(v), x(v), height - 16, v === 0 ? 'right' : 'center', 'bottom');
    text(c, axis, (plot.left + plot.right) / 2, height - 1, 'center', 'bottom', inks.ink);
    upright(c, ofReward('value'), (plot.top + plot.bottom) / 2);
    const places = offset.map((/** @type {number} */ _, /** @type {number} */ k) => x(row(k)));
    for (const [from, to] of pieces(this.next)) {
      band(c, places, value, deviation, [from, to], y);
      line(c, places, value, [from, to], y, inks.accent, 2, []);
      line(c, places, realised, [from, to], y, inks.second, 1.4, [4, 3]);
    }
    this.rewards(c, plot, places, reward, { lane, most });
    text(c, label, plot.left - 6, plot.bottom + 4 + lane / 2 - APART, 'right');
    text(c, ends, plot.left - 6, plot.bottom + 4 + lane / 2 + APART, 'right');
    this.ends(c, plot, places);
    if (this.next.pinned !== null) flag(c, plot, places[this.next.pinned]);
    this.hover(c, plot, places, y);
  }

  /**
   * Rewards as bars in a lane of their own, about zero; `most` is at its edges.
   * @param {CanvasRenderingContext2D} c
   * @param {import('./types').Plot} plot
   * @param {number[]} places
   * @param {number[]} reward
   * @param {{lane: number, most: number}} scale
   */
  rewards(c, plot, places, reward, { lane, most }) {
    const middle = plot.bottom + 4 + lane / 2;
    c.fillStyle = inks.grid;
    c.fillRect(plot.left, middle, plot.right - plot.left, 1);
    c.fillStyle = inks.soft;
    const wide = Math.max(1, (plot.right - plot.left) / places.length - 1);
    reward.forEach((/** @type {number} */ r, /** @type {number} */ k) => {
      const tall = (r / most) * (lane / 2 - 2);
      const [from, to] = [Math.max(places[k] - wide / 2, plot.left), Math.min(places[k] + wide / 2, plot.right)];
      c.fillRect(from, Math.min(middle, middle - tall), to - from, Math.max(Math.abs(tall), 0.5));
    });
  }

  /**
   * Where episodes ended: a filled square where they terminated, a hollow one where they were cut off.
   * @param {CanvasRenderingContext2D} c
   * @param {import('./types').Plot} plot
   * @param {number[]} places
   */
  ends(c, plot, places) {
    // Where every other row ends an episode, marks would hide the values.
    const lined = this.next.end.filter(Boolean).length <= ENDS_LINED;
    this.next.end.forEach((/** @type {number} */ end, /** @type {number} */ k) => {
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

  /**
   * @param {CanvasRenderingContext2D} c
   * @param {import('./types').Plot} plot
   * @param {number[]} places
   * @param {import('./types').Scale} y
   */
  hover(c, plot, places, y) {
    if (this.pointer) {
      const px = this.pointer[0];
      let best = 0;
      places.forEach((/** @type {number} */ place, /** @type {number} */ k) => {
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

/** Seconds between two rows from which on nothing has come between them. @param {number[]} seconds */
function silence(seconds) {
  const steps = seconds.slice(1).map((s, k) => s - seconds[k]);
  const usual = [...steps].sort((a, b) => a - b)[steps.length >> 1] ?? 0;
  return Math.max(SILENT_S, -SILENT_SHARE * seconds[0], SILENT_STEPS * usual);
}

/** Unbroken runs [from, to] of rows: an episode that ends, a chain that begins, or a time without rows breaks them. */
export function pieces(/** @type {Pick<import('./types').Path, 'end' | 'starts' | 'seconds'>} */ { end, starts, seconds }) {
  const gap = seconds ? silence(seconds) : Infinity;
  /** @type {number[][]} */
  const out = [];
  let from = 0;
  for (let k = 0; k < end.length; k += 1) {
    const breaks = end[k] !== 0 || k + 1 === end.length || starts[k + 1] || (seconds && seconds[k + 1] - seconds[k] > gap);
    if (!breaks) continue;
    out.push([from, k]);
    from = k + 1;
  }
  return out;
}

/** The ends of the axis: everything that is drawn, in round numbers that only change when it no longer fits. */
let kept = { key: '', scale: [0, 1] };

function heights(/** @type {import('./types').Path} */ { value, deviation, realised, wanted, critic: name }) {
  const all = value.flatMap((/** @type {number} */ v, /** @type {number} */ k) => [v - 2 * (deviation[k] ?? 0), v + 2 * (deviation[k] ?? 0), realised[k] ?? v]);
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const key = `${name} ${wanted}`;
  const fits = kept.key === key && kept.scale[0] <= low && high <= kept.scale[1];
  if (!fits || high - low < 0.4 * (kept.scale[1] - kept.scale[0])) kept = { key, scale: round([low, high], 5) };
  return kept.scale;
}

/** The reward at the edges of its lane: a round number that only changes when it no longer fits. */
function tallest(/** @type {import('./types').Path} */ { reward, wanted, critic: name }) {
  const most = Math.max(...reward.map(Math.abs));
  return steady(LANE, `${name} ${chosen.head} ${wanted}`, [0, most])[1];
}

/**
 * The row that the reader has asked for, with a flag.
 * @param {CanvasRenderingContext2D} c
 * @param {import('./types').Plot} plot
 * @param {number} place
 */
function flag(c, plot, place) {
  c.fillStyle = inks.warn;
  c.fillRect(place - 1, plot.top, 2, plot.bottom - plot.top);
  c.beginPath();
  c.moveTo(place, plot.top);
  c.lineTo(place + 12, plot.top + 5);
  c.lineTo(place, plot.top + 10);
  c.fill();
}

/**
 * Two standard deviations about the value.
 * @param {CanvasRenderingContext2D} c
 * @param {number[]} places
 * @param {number[]} value
 * @param {(number | null)[]} deviation
 * @param {number[]} range
 * @param {import('./types').Scale} y
 */
function band(c, places, value, deviation, [from, to], y) {
  if (deviation[from] === null) return;
  if (from === to) {
    // An episode of one row.
    c.fillStyle = inks['accent-soft'];
    c.fillRect(places[from] - 2, y(value[from] + 2 * (deviation[from] ?? 0)), 4, y(-2 * (deviation[from] ?? 0)) - y(2 * (deviation[from] ?? 0)));
    return;
  }
  c.beginPath();
  for (let k = from; k <= to; k += 1) c.lineTo(places[k], y(value[k] + 2 * (deviation[k] ?? 0)));
  for (let k = to; k >= from; k -= 1) c.lineTo(places[k], y(value[k] - 2 * (deviation[k] ?? 0)));
  c.fillStyle = inks['accent-soft'];
  c.fill();
}

/**
 * @param {CanvasRenderingContext2D} c
 * @param {number[]} places
 * @param {(number | null)[]} values
 * @param {number[]} range
 * @param {import('./types').Scale} y
 * @param {string} colour
 * @param {number} wide
 * @param {number[]} dashes
 */
function line(c, places, values, [from, to], y, colour, wide, dashes) {
  if (from === to && values[from] !== null) {
    // One row is a dot: hollow where a line would be dashed.
    c.beginPath();
    c.arc(places[from], y(values[from] ?? 0), dashes.length ? 2.6 : 1.8, 0, 7);
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
    const value = values[k];
    if (value === null) {
      running = false;
      continue;
    }
    if (running) c.lineTo(places[k], y(value));
    else c.moveTo(places[k], y(value));
    running = true;
  }
  c.strokeStyle = colour;
  c.lineWidth = wide;
  c.setLineDash(dashes);
  c.stroke();
  c.setLineDash([]);
}
