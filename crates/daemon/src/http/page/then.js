// The value as it was at a moment of the past, which the daemon learns again.

import { $, say } from '/dom.js';
import { chosen, critic, inReward, known, ofHead, series } from '/known.js';
import { format, grouped } from '/words.js';

/** Whether the past can be told. */
const isKept = () => Boolean(known.status?.journal);

/** A moment in words: its row, when that was stored, and how the newest returns were predicted then. @param {number} rows */
function moment(rows) {
  const k = known.history.offset?.findLastIndex((offset) => offset !== null && offset <= rows) ?? -1;
  const [error, coverage] = ['error', 'coverage'].map((name) => series(ofHead(name))[k]);
  const time = known.history.time?.[k];
  const words = [
    `row ${grouped(rows)}`,
    time && new Date(1000 * time).toLocaleString(),
    error != null && `error ${inReward(format(error))}`,
    coverage != null && `${Math.round(100 * coverage)} % of the returns in their interval`,
  ];
  return words.filter(Boolean).join(', ');
}

/** The choice of a moment, in the list of models; none where there is no past. @returns {[string, string][]} */
export const ofThen = () => (isKept() ? [['then', 'as of a row']] : []);

/** Show a moment: first the present one, which is compared with what comes. @param {boolean} chooses */
export function lookBack(chooses) {
  if (!chooses) chosen.then = null;
  else {
    chosen.earlier = null;
    chosen.then ??= known.status?.offset ?? 0;
    chosen.against ||= `generation ${critic()?.generation}`;
  }
}

/** Bring the slider up to date. */
export function thenChoice() {
  if (chosen.named !== null || !isKept()) chosen.then = null;
  $('then-choice').hidden = chosen.then === null;
  if (chosen.then === null) return;
  const slider = $('then', HTMLInputElement);
  slider.max = String(known.status?.offset ?? 0);
  if (document.activeElement !== slider) slider.value = String(chosen.then);
  say($('then-out'), moment(Number(slider.value)));
}

/** Follow the slider. @param {() => void} seen */
export function onLookingBack(seen) {
  const slider = $('then', HTMLInputElement);
  slider.addEventListener('input', () => say($('then-out'), moment(Number(slider.value))));
  slider.addEventListener('change', () => {
    chosen.then = Number(slider.value);
    seen();
  });
}
