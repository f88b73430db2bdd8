// The actions of a critic: their names, and colours that tell them apart.

import { chosen, critic, ofReward, rewardWord } from '/known.js';

/** Colours of discrete actions, which eyes of all kinds tell apart; with more actions they come again, paler. */
const PALETTE = [
  [0, 114, 178],
  [230, 159, 0],
  [0, 158, 115],
  [204, 121, 167],
  [86, 180, 233],
  [213, 94, 0],
  [240, 228, 66],
  [153, 153, 153],
];
const ENTRIES = 256;
/** Names beside a colour bar, and letters of each. */
const NAMES = 12;
const LETTERS = 14;

/** Whether the critic that is shown learns values of actions. */
export const ofActions = () => Boolean(critic()?.actions);

/** What the value on the map is a sum of, in words. */
export function summed() {
  if (chosen.named !== null) return 'expected sum of its cumulant';
  const word = rewardWord();
  const discounted = critic().discount < 1 ? 'discounted ' : '';
  if (word) return `expected ${discounted}sum of ${ofReward(word)}`;
  return `expected ${discounted}return${ofActions() ? ' of the best action' : ''}`;
}

/** Whether the values of the chosen critic belong to another policy than the one whose returns come. */
export const unverified = () => (critic()?.actions?.successor ?? 'sarsa') !== 'sarsa';

/** The name of a discrete action, or the first coordinate of one of a box. @param {number} action @param {(v: number) => string} format */
export function actionWords(action, format) {
  const { names } = critic().actions;
  return names.length ? (names[Math.round(action)] ?? format(action)) : format(action);
}

/** How a map of actions is coloured: table of colours, ends of the scale, ticks, and whether cells stay apart. */
export function actionScale() {
  const { names, low, high } = critic().actions;
  const count = names.length;
  if (!count) return { table: null, scale: [low[0], high[0]], ticks: null, blocks: false };
  const table = new Uint8Array(3 * ENTRIES);
  for (let k = 0; k < ENTRIES; k += 1) {
    const action = Math.min(Math.floor((k * count) / ENTRIES), count - 1);
    const pale = Math.min(Math.floor(action / PALETTE.length) * 0.4, 0.8);
    PALETTE[action % PALETTE.length].forEach((v, j) => {
      table[3 * k + j] = v + (255 - v) * pale;
    });
  }
  const every = Math.ceil(count / NAMES);
  const short = (/** @type {string} */ name) => (name.length > LETTERS ? `${name.slice(0, LETTERS - 1)}…` : name);
  const ticks = names.flatMap((/** @type {string} */ name, /** @type {number} */ k) => (k % every === 0 ? [[k, short(name)]] : []));
  return { table, scale: [-0.5, count - 0.5], ticks, blocks: true };
}
