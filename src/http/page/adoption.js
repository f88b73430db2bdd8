// Whether an adoption helped: the errors of its model beside those of the model before.

import { compared } from '/known.js';
import { format } from '/words.js';

/** Returns per independent one: neighbouring returns share most of their rewards. */
const PER_INDEPENDENT = 4;

/** How the newest returns of one model compare. @typedef {{generation: number, count: number, error: number, bias: number, coverage: number}} Verdict */

/** Those of the chosen critic's models, oldest first; of models with too few returns there is none. @returns {Verdict[]} */
const verdicts = () =>
  (compared()?.generations ?? []).map(([generation, count, error, bias, coverage]) => ({ generation, count, error, bias, coverage }));

/** Variance of an error that is a root mean square over dependent returns. @param {Verdict} of */
const scatter = ({ error, count }) => (error ** 2 * PER_INDEPENDENT) / (2 * count);

/**
 * How the model of a generation compares with the one before: the numbers in words, and what follows from them; null where too few
 * returns of either are known.
 * @param {number} generation
 * @returns {?{numbers: string, verdict: string}}
 */
export function helped(generation) {
  const all = verdicts();
  const since = all.find((each) => each.generation === generation);
  const before = all.findLast((each) => each.generation < generation);
  if (!since || !before) return null;
  const percent = (/** @type {Verdict} */ of) => `${Math.round(100 * of.coverage)} %`;
  const gained = before.error - since.error;
  const sure = Math.abs(gained) > 2 * Math.sqrt(scatter(since) + scatter(before));
  return {
    numbers: `error ${format(since.error, 2)} since, ${format(before.error, 2)} before; ${percent(since)} of returns in their 90 % interval since, ${percent(before)} before`,
    verdict: !sure ? 'no clear difference' : gained > 0 ? 'it has helped' : 'it has made them worse',
  };
}
