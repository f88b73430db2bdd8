// Which critics need attention, and why: the daemon judges each of them, this gathers what it says.

import { newest } from '/known.js';

/** What is amiss with a critic itself; a reason of the daemon's would be one of all critics. @param {import('/known.js').CriticStatus} each */
const own = (each) => (each.trust ?? []).flatMap(({ reasons }) => reasons).filter(({ of }) => of === 'critic');

/** Why a critic needs attention, in words; empty where it is well. @param {import('/known.js').CriticStatus} each @returns {string[]} */
export const concerns = (each) => [...new Set(own(each).map(({ text }) => text))];

/**
 * The need of attention of a critic: highest where it is bad, then where there is a reason for care, then by the share of returns outside
 * of their intervals; lowest without returns.
 * @param {import('/known.js').CriticStatus} each
 */
export function rank(each) {
  const reasons = own(each);
  if (reasons.some(({ level }) => level === 'bad')) return 3;
  const covered = newest(each.name, 'coverage');
  return (reasons.length ? 1 : 0) + (covered === null ? -1 : 1 - covered);
}
