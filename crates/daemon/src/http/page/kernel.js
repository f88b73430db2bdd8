// Lengthscales, as a kernel has them.

import { critic, dim } from '/known.js';

/** The squared inverse lengthscale along variable k, directions included. */
function relevance(/** @type {any} */ kernel, /** @type {number} */ k) {
  const own = Array.isArray(kernel.relevance) ? kernel.relevance[k] : kernel.relevance;
  return (kernel.factors ?? []).reduce((/** @type {number} */ sum, /** @type {number[]} */ factor) => sum + factor[k] ** 2, own);
}

/** The word and the numbers of what variable k is. @returns {any[]} */
const kind = (/** @type {any} */ kernel, /** @type {number} */ k) => (kernel?.kinds?.[k] ?? 'real').split(':');

/** Squared inverse lengthscales in normalised coordinates, directions included. @returns {number[]} */
export function relevances() {
  return Array.from({ length: dim() }, (_, k) => relevance(critic().kernel, k));
}

/**
 * How far state variable k has to move, in its own unit, for a value to change: null for a category, which is equal or
 * different; Infinity where the kernel leaves the variable out. Its scale is 1 where it has a
 * period, a circle of that length; what is bent counts as it goes about the mean.
 */
export function lengthscale(/** @type {any} */ { kernel, scale }, /** @type {number} */ k) {
  const along = relevance(kernel, k), [word, p, s, w] = kind(kernel, k);
  if (word === 'category') return along > 0 ? null : Infinity;
  return scale[k] * (w ? Math.hypot(p, s) / w : p ? p / 2 / Math.PI : 1) / Math.sqrt(along);
}

/** After how much state variable k begins again; Infinity where it does not. @param {number} k */
export function period(k) {
  const [, p, s] = kind(critic().kernel, k);
  return p && !s ? Number(p) : Infinity;
}
