// A function of one variable, with a band for what is not known of it.

import { Picture, context, cross, frame, inks, mix, text } from '/canvas.js';
import { ticks } from '/words.js';

/** A function of one variable, with a band. */
export class Curve extends Picture {
  /** A place that is pointed out elsewhere. @type {?number[]} */
  spot = null;

  /** `next`: range [x0, x1]; scale [low, high]; mean, deviation, other (arrays; other: what is compared with, or empty); came: [[place, return]]; name; points; key; generation. */
  show(next) {
    const before = this.next;
    const same = before && before.key === next.key && before.mean.length === next.mean.length;
    if (same && (before.generation !== next.generation || before.scale.some((v, k) => v !== next.scale[k]))) {
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
    const eased = (name) => this.next[name].map((v, k) => mix(this.from[name][k], v, t));
    return { mean: eased('mean'), deviation: eased('deviation'), scale: eased('scale') };
  }

  paint() {
    const drawn = context(this.canvas);
    if (!drawn || !this.next) return;
    const { c, width, height } = drawn;
    const { range, name, points } = this.next;
    const { mean, deviation, scale } = this.present();
    const yTicks = ticks(scale[0], scale[1], Math.max(3, height / 60));
    const widest = Math.max(...yTicks.map(([, words]) => c.measureText(words).width));
    const plot = { left: widest + 14, top: 8, right: width - 10, bottom: height - 38 };
    const x = (v) => mix(plot.left, plot.right, (v - range[0]) / (range[1] - range[0]));
    const y = (v) => mix(plot.bottom, plot.top, (v - scale[0]) / (scale[1] - scale[0]));
    frame(c, plot, ticks(range[0], range[1], Math.max(3, width / 90)), yTicks, x, y);
    text(c, name, (plot.left + plot.right) / 2, height - 1, 'center', 'bottom', inks.ink);
    const place = (k) => x(mix(range[0], range[1], (k + 0.5) / mean.length));
    c.save();
    c.beginPath();
    c.rect(plot.left, plot.top, plot.right - plot.left, plot.bottom - plot.top);
    c.clip();
    if (deviation.length) {
      // Two standard deviations, and within them one.
      for (const widths of [2, 1]) {
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
    for (let k = 0; k < mean.length; k += 1) c.lineTo(place(k), y(mean[k]));
    c.strokeStyle = inks.accent;
    c.lineWidth = 2;
    c.stroke();
    const { other } = this.next;
    if (other.length) {
      c.beginPath();
      for (let k = 0; k < other.length; k += 1) c.lineTo(x(mix(range[0], range[1], (k + 0.5) / other.length)), y(other[k]));
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
