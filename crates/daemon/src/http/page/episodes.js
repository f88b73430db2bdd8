// Returns of the last episodes, as an agent earned them.

import { ofActions } from '/actions.js';
import { Picture, context, frame, inks, mix, text, upright } from '/canvas.js';
import { $, say } from '/dom.js';
import { chosen, critic, inReward, known, ofReward } from '/known.js';
import { format, grouped, round, ticks } from '/words.js';

/** Episodes that a mean goes over. */
const MEAN_OF = 10;

/** The sum of the critic's reward over each episode. */
const totals = () => known.episodes.map(([, , sums]) => sums[critic()?.rewards?.[chosen.head] ?? 0]);

/** The mean of ten episodes behind each; null before there are ten. @param {number[]} values */
function means(values) {
  return values.map((_, k) =>
    k + 1 < MEAN_OF ? null : values.slice(k + 1 - MEAN_OF, k + 1).reduce((sum, v) => sum + v, 0) / MEAN_OF,
  );
}

/** A dot for each episode, and the mean of ten as a line. */
class Episodes extends Picture {
  /** @param {{values: number[]}} next */
  show(next) {
    this.next = next;
    this.draw();
  }

  paint() {
    const drawn = context(this.canvas);
    if (!drawn || !this.next) return;
    const { c, width, height } = drawn;
    const { values } = this.next;
    const count = values.length;
    const scale = round([Math.min(...values), Math.max(...values)]);
    const yTicks = ticks(scale[0], scale[1], 4);
    const widest = Math.max(...yTicks.map(([, words]) => c.measureText(words).width));
    const plot = { left: widest + 30, top: 8, right: width - 8, bottom: height - 36 };
    const x = (/** @type {number} */ v) => mix(plot.left, plot.right, (v - 0.5) / count);
    const y = (/** @type {number} */ v) => mix(plot.bottom, plot.top, (v - scale[0]) / (scale[1] - scale[0]));
    const whole = ticks(1, Math.max(count, 2), 6).filter(([v]) => Number.isInteger(v));
    frame(c, plot, whole, yTicks, x, y);
    upright(c, ofReward('return'), (plot.top + plot.bottom) / 2);
    text(c, 'episode', (plot.left + plot.right) / 2, height - 1, 'center', 'bottom', inks.ink);
    c.fillStyle = inks.second;
    values.forEach((/** @type {number} */ v, /** @type {number} */ k) => {
      c.beginPath();
      c.arc(x(k + 1), y(v), 2.4, 0, 7);
      c.fill();
    });
    c.beginPath();
    means(values).forEach((v, k) => v !== null && c.lineTo(x(k + 1), y(v)));
    c.strokeStyle = inks.accent;
    c.lineWidth = 2;
    c.stroke();
    if (!this.pointer) return this.say(null);
    const share = (this.pointer[0] - plot.left) / (plot.right - plot.left);
    const at = Math.min(Math.max(Math.floor(share * count), 0), count - 1);
    c.fillStyle = inks.ink;
    c.globalAlpha = 0.6;
    c.fillRect(Math.round(x(at + 1)), plot.top, 1, plot.bottom - plot.top);
    c.globalAlpha = 1;
    return this.say(at);
  }
}

const picture = new Episodes($('episodes-plot'), (at) => {
  const found = at === null ? null : known.episodes[at];
  const words = found ? `episode ${at + 1} of those shown: return ${inReward(format(totals()[at]))}, ${grouped(found[1])} rows` : '';
  say($('episodes-out'), words);
});

/** The card of episodes, where there are some. */
export function episodesCard() {
  const values = totals();
  $('episodes').hidden = !ofActions() || values.length < 2;
  if ($('episodes').hidden) return;
  const last = means(values).at(-1);
  const mean = last === null || last === undefined ? '' : `; mean of the last ${MEAN_OF}: ${inReward(format(last))}`;
  say($('episodes-note'), `${grouped(values.length)} episodes${mean}`);
  picture.show({ values });
}

/** The numbers of the picture; null before there are any. */
export function episodeColumns() {
  const values = totals();
  if (!values.length) return null;
  const of = (/** @type {number} */ k) => known.episodes.map((episode) => episode[k]);
  return { offset: of(0), rows: of(1), return: values, mean_of_ten: means(values) };
}
