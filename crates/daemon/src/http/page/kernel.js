// Lengthscales, as a kernel has them.

import { critic, dim } from '/known.js';

/** Squared inverse lengthscales in normalised coordinates, directions included. @returns {number[]} */
export function relevances() {
  const { kernel } = critic();
  const own = Array.isArray(kernel.relevance) ? kernel.relevance : Array(dim()).fill(kernel.relevance);
  return own.map((/** @type {number} */ a, /** @type {number} */ k) => a + (kernel.factors ?? []).reduce((/** @type {number} */ sum, /** @type {number[]} */ factor) => sum + factor[k] ** 2, 0));
}

/**
 * How far state variable k has to move, in its own unit, for a value to change: null for a category, which is equal or
 * different; Infinity where the kernel leaves the variable out. A period is gone round as a circle of that length; what is bent counts as it goes about the mean.
 */
export function lengthscale(/** @type {any} */ { kernel, scale }, /** @type {number} */ k) {
  const own = Array.isArray(kernel.relevance) ? kernel.relevance[k] : kernel.relevance;
  const relevance = own + (kernel.factors ?? []).reduce((/** @type {number} */ sum, /** @type {number[]} */ factor) => sum + factor[k] ** 2, 0);
  const [kind, p, s, w] = (kernel.kinds?.[k] ?? 'real').split(':');
  if (kind === 'category') return relevance > 0 ? null : Infinity;
  const unit = kind === 'periodic' ? p / (2 * Math.PI) : w ? Math.hypot(p, s) / w * scale[k] : scale[k];
  return unit / Math.sqrt(relevance);
}

/** After how much state variable k begins again; Infinity where it does not. @param {number} k */
export function period(k) {
  const kind = critic().kernel?.kinds?.[k] ?? 'real';
  return kind.startsWith('periodic:') ? Number(kind.slice(9)) : Infinity;
}
