// A function of one variable, with a band for what is not known of it.

import { Picture, context, cross, frame, inks, mix, text, upright } from '/canvas.js';
import { diamond } from '/shapes.js';
import { ticks } from '/words.js';

/** A function of one variable, with a band. */
export class Curve extends Picture {
  /** A place that is pointed out elsewhere. @type {?number[]} */
  spot = null;
  /** Where each stream is now. @type {import('/value.js').Marker[]} */
  robots = [];

  /** `next`: range [x0, x1]; scale [low, high]; mean, deviation, other (arrays; other: what is compared with, or empty); unknown: whether hardly anything is known at each place (array); came: [[place, return]]; zero: whether there is a line at zero; widths: of the bands, in deviations; name; height: what goes upwards; points; key; generation. A mean that is no number leaves a gap. */
  show(/** @type {any} */ next) {
    const before = this.next;
    const same = before && before.key === next.key && before.mean.length === next.mean.length;
    if (same && (before.generation !== next.generation || before.scale.some((/** @type {number} */ v, /** @type {number} */ k) => v !== next.scale[k]))) {
      this.from = this.present();
      this.ease();
    } else if (!same) {
      this.from = null;
    }
    this.next = next;
    this.draw();
  }

  present() {
    const t = this.from ? this.progress() : 1;
    const { mean, deviation, scale } = this.next;
    if (t >= 1) return { mean, deviation, scale };
    const eased = (/** @type {string} */ name) => this.next[name].map((/** @type {number} */ v, /** @type {number} */ k) => mix(this.from[name][k], v, t));
    return { mean: eased('mean'), deviation: eased('deviation'), scale: eased('scale') };
  }

  /** Lines over places where hardly anything is known. @param {any} c @param {any} plot @param {(k: number) => number} place */
  hatch(c, plot, place) {
    const { unknown } = this.next;
    const half = (place(1) - place(0)) / 2;
    const tall = plot.bottom - plot.top;
    for (let k = 0; k < unknown.length; k += 1) {
      if (!unknown[k]) continue;
      let to = k;
      while (to + 1 < unknown.length && unknown[to + 1]) to += 1;
      const [left, right] = [place(k) - half, place(to) + half];
      c.save();
      c.beginPath();
      c.rect(left, plot.top, right - left, tall);
      c.clip();
      c.fillStyle = inks.unknown;
      c.globalAlpha = 0.6;
      c.fillRect(left, plot.top, right - left, tall);
      c.strokeStyle = inks.soft;
      c.lineWidth = 1;
      c.beginPath();
      for (let v = left - tall; v < right; v += 7) {
        c.moveTo(v, plot.bottom);
        c.lineTo(v + tall, plot.top);
      }
      c.stroke();
      c.restore();
      k = to;
    }
  }

  paint() {
    const drawn = context(this.canvas);
    if (!drawn || !this.next) return;
    const { c, width, height } = drawn;
    const { range, name, points } = this.next;
    const { mean, deviation, scale } = this.present();
    const yTicks = ticks(scale[0], scale[1], Math.max(3, height / 60));
    const widest = Math.max(...yTicks.map(([, words]) => c.measureText(words).width));
    const plot = { left: widest + 30, top: 8, right: width - 10, bottom: height - 38 };
    const x = (/** @type {number} */ v) => mix(plot.left, plot.right, (v - range[0]) / (range[1] - range[0]));
    const y = (/** @type {number} */ v) => mix(plot.bottom, plot.top, (v - scale[0]) / (scale[1] - scale[0]));
    frame(c, plot, ticks(range[0], range[1], Math.max(3, width / 90)), yTicks, x, y);
    text(c, name, (plot.left + plot.right) / 2, height - 1, 'center', 'bottom', inks.ink);
    upright(c, this.next.height, (plot.top + plot.bottom) / 2);
    const place = (/** @type {number} */ k) => x(mix(range[0], range[1], (k + 0.5) / mean.length));
    c.save();
    c.beginPath();
    c.rect(plot.left, plot.top, plot.right - plot.left, plot.bottom - plot.top);
    c.clip();
    this.hatch(c, plot, place);
    if (this.next.zero) {
      c.fillStyle = inks.soft;
      c.fillRect(plot.left, Math.round(y(0)), plot.right - plot.left, 1);
    }
    if (deviation.length) {
      // Two standard deviations, and within them one.
      for (const widths of this.next.widths ?? [2, 1]) {
        c.beginPath();
        for (let k = 0; k < mean.length; k += 1) c.lineTo(place(k), y(mean[k] + widths * deviation[k]));
        for (let k = mean.length - 1; k >= 0; k -= 1) c.lineTo(place(k), y(mean[k] - widths * deviation[k]));
        c.fillStyle = inks['accent-soft'];
        c.fill();
      }
    }
    c.fillStyle = inks.second;
    c.globalAlpha = 0.45;
    for (const [at, value] of this.next.came) {
      c.beginPath();
      c.arc(x(at), y(value), 2, 0, 7);
      c.fill();
    }
    c.globalAlpha = 1;
    c.beginPath();
    for (let k = 0; k < mean.length; k += 1) {
      if (Number.isNaN(mean[k])) continue;
      if (k > 0 && Number.isNaN(mean[k - 1])) c.moveTo(place(k), y(mean[k]));
      else c.lineTo(place(k), y(mean[k]));
    }
    c.strokeStyle = inks.accent;
    c.lineWidth = 2;
    c.stroke();
    const { other } = this.next;
    if (other.length) {
      c.beginPath();
      for (let k = 0; k < other.length; k += 1) if (!Number.isNaN(other[k])) c.lineTo(x(mix(range[0], range[1], (k + 0.5) / other.length)), y(other[k]));
      c.strokeStyle = inks.second;
      c.setLineDash([5, 4]);
      c.stroke();
      c.setLineDash([]);
    }
    for (const { at, kind } of points) {
      for (const [v] of at) {
        // A rug at the bottom: where states are, not what was seen of their values.
        c.fillStyle = kind === 'dictionary' ? inks.accent : inks.soft;
        c.globalAlpha = kind === 'dictionary' ? 0.9 : 0.4;
        if (kind === 'dictionary') c.fillRect(x(v) - 0.5, plot.bottom - 15, 1.4, 6);
        else c.fillRect(x(v) - 0.5, plot.bottom - 9, 1, 9);
        c.globalAlpha = 1;
      }
    }
    for (const robot of [...this.robots].sort((a, b) => Number(a.own) - Number(b.own))) {
      // A tick on the axis, and the mark on the curve.
      const share = (robot.at[0] - range[0]) / (range[1] - range[0]);
      const k = Math.min(Math.max(Math.floor(share * mean.length), 0), mean.length - 1);
      c.fillStyle = inks.ink;
      c.fillRect(x(robot.at[0]) - 1, plot.bottom - 12, 2, 12);
      diamond(c, x(robot.at[0]), y(mean[k]), robot, this.robots.length, plot.right);
    }
    c.restore();
    if (this.spot) {
      c.fillStyle = inks.warn;
      c.fillRect(x(this.spot[0]) - 1, plot.top, 2, plot.bottom - plot.top);
    }
    const across = this.pointer ? (this.pointer[0] - plot.left) / (plot.right - plot.left) : -1;
    if (across < 0 || across > 1) return this.say(null);
    const k = Math.min(Math.floor(across * mean.length), mean.length - 1);
    cross(c, plot, [this.pointer?.[0] ?? 0, y(mean[k])]);
    const place_ = [mix(range[0], range[1], across)];
    return this.say({ place: place_, value: mean[k], deviation: deviation[k], across, up: 0, reach: (range[1] - range[0]) / (plot.right - plot.left) });
  }
}
