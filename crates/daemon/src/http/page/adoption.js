// Whether an adoption helped: the errors of its model beside the errors of the model before, as the daemon judges them.

import { compared } from '/known.js';
import { format } from '/words.js';

/** How the newest separate returns of one model compare, and whether it has helped: 1, -1, 0; null of the first. @typedef {{generation: number, error: number, coverage: number, helped: ?number}} Verdict */

/** The verdicts on the chosen critic's models, oldest first; of models with too few returns there is none. @returns {Verdict[]} */
const verdicts = () =>
  (compared()?.generations ?? []).map(([generation, , error, , coverage, helped]) => ({ generation, error, coverage, helped }));

/** @type {Record<string, string>} */
const WORDS = { '1': 'it has helped', '-1': 'it has made them worse', '0': 'no clear difference' };

/**
 * How the model of a generation compares with the one before: the numbers in words, and what follows from them; null where too few
 * returns of either are known.
 * @param {number} generation
 * @returns {?{numbers: string, verdict: string}}
 */
export function helped(generation) {
  const all = verdicts();
  const place = all.findIndex((each) => each.generation === generation);
  const [before, since] = [all[place - 1], all[place]];
  if (!since || !before) return null;
  const percent = (/** @type {Verdict} */ of) => `${Math.round(100 * of.coverage)} %`;
  return {
    numbers: `error ${format(since.error, 2)} since, ${format(before.error, 2)} before; ${percent(since)} of returns in their 90 % interval since, ${percent(before)} before`,
    verdict: WORDS[String(since.helped ?? 0)],
  };
}
