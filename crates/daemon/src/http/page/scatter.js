// Predictions against returns.

import { Picture, context, frame, inks, mix, text, upright } from '/canvas.js';
import { ofReward } from '/known.js';
import { ticks } from '/words.js';

/** Pairs against each other, with the line on which both are equal. `pairs`: [predicted, realised, deviation]; `means`: mean of each by groups. */
export class Scatter extends Picture {
  /** @param {{pairs: number[][], means: number[][], range: number[]}} next */
  show(next) {
    this.next = next;
    this.draw();
  }

  paint() {
    const drawn = context(this.canvas);
    if (!drawn || !this.next) return;
    const { c, width, height } = drawn;
    const { pairs, range } = this.next;
    const xTicks = ticks(range[0], range[1], 4);
    const widest = Math.max(...xTicks.map(([, words]) => c.measureText(words).width));
    // A square: both axes have one scale.
    const side = Math.min(width - widest - 36, height - 44);
    const left = widest + 28 + (width - widest - 36 - side) / 2;
    const plot = { left, top: 6, right: left + side, bottom: 6 + side };
    const x = (/** @type {number} */ v) => mix(plot.left, plot.right, (v - range[0]) / (range[1] - range[0]));
    const y = (/** @type {number} */ v) => mix(plot.bottom, plot.top, (v - range[0]) / (range[1] - range[0]));
    frame(c, plot, xTicks, xTicks, x, y);
    text(c, ofReward('predicted'), (plot.left + plot.right) / 2, plot.bottom + 36, 'center', 'bottom', inks.ink);
    upright(c, ofReward('realised'), (plot.top + plot.bottom) / 2, plot.left - widest - 21);
    c.save();
    c.beginPath();
    c.rect(plot.left, plot.top, plot.right - plot.left, plot.bottom - plot.top);
    c.clip();
    c.strokeStyle = inks.soft;
    c.lineWidth = 1;
    c.beginPath();
    c.moveTo(x(range[0]), y(range[0]));
    c.lineTo(x(range[1]), y(range[1]));
    c.stroke();
    /** @type {any} */
    let nearest = null;
    for (const pair of pairs) {
      const [predicted, realised, deviation] = pair;
      const outside = Math.abs(realised - predicted) > 1.644854 * deviation;
      c.beginPath();
      c.globalAlpha = 0.6;
      if (outside) {
        // Shapes beside colours: a cross is outside its interval.
        const [px, py] = [x(predicted), y(realised)];
        c.moveTo(px - 3, py - 3);
        c.lineTo(px + 3, py + 3);
        c.moveTo(px + 3, py - 3);
        c.lineTo(px - 3, py + 3);
        c.strokeStyle = inks.bad;
        c.lineWidth = 1.5;
        c.stroke();
      } else {
        c.arc(x(predicted), y(realised), 2.6, 0, 7);
        c.fillStyle = inks.accent;
        c.fill();
      }
      c.globalAlpha = 1;
      if (this.pointer) {
        const away = Math.hypot(x(predicted) - this.pointer[0], y(realised) - this.pointer[1]);
        if (away < 24 && away < (nearest?.away ?? Infinity)) nearest = { away, pair };
      }
    }
    if (this.next.means.length > 1) {
      c.beginPath();
      for (const [predicted, realised] of this.next.means) c.lineTo(x(predicted), y(realised));
      c.strokeStyle = inks.second;
      c.lineWidth = 2;
      c.setLineDash([4, 3]);
      c.stroke();
      c.setLineDash([]);
    }
    if (nearest) {
      const [predicted, realised, deviation] = nearest.pair;
      c.strokeStyle = inks.ink;
      c.beginPath();
      c.moveTo(x(predicted), y(predicted - 1.644854 * deviation));
      c.lineTo(x(predicted), y(predicted + 1.644854 * deviation));
      c.stroke();
      c.beginPath();
      c.arc(x(predicted), y(realised), 4.5, 0, 7);
      c.stroke();
    }
    c.restore();
    this.say(nearest?.pair ?? null);
  }
}
