// The address of what is shown: critic, axes, where the other variables stand, time span. The address can be shared.

import { chosen, critic, dim, known } from '/known.js';

/** What an address asked for, until it has been followed. @type {?URLSearchParams} */
let wanted = location.hash.length > 1 ? new URLSearchParams(location.hash.slice(1)) : null;

/** The name of the critic that is shown, or that the address asks for; null where neither is known. */
export const shownCritic = () => wanted?.get('critic') ?? critic()?.name ?? null;

/** The critic of the address, once; else the chosen one. */
export function addressedCritic() {
  const name = wanted?.get('critic');
  const k = known.status?.critics.findIndex((each) => each.name === name) ?? -1;
  return k >= 0 ? k : chosen.critic;
}

/** The reader has chosen: the address no longer asks for anything. */
export function leave() {
  wanted = null;
}

/** What the address asks for, once there is a model: axes [x, y] and the state (D,), null where it names none, whether
 * the others are averaged over, and what is compared with. */
export function addressedView() {
  const asked = wanted;
  wanted = null;
  if (!asked || (asked.get('critic') && asked.get('critic') !== critic().name)) return null;
  const axis = (/** @type {string} */ name) => {
    const text = asked.get(name);
    const k = Number(text);
    return text !== null && text !== '' && Number.isInteger(k) && k >= 0 && k < dim() ? k : null;
  };
  const at = (asked.get('at') ?? '').split(',').map(Number);
  const state = at.length === dim() && asked.has('at') && at.every(Number.isFinite) ? at : null;
  const [x, y] = [axis('x'), axis('y')];
  return {
    axes: x === null || x === y ? null : [x, y],
    state,
    average: asked.get('others') === 'averaged',
    against: asked.get('against') ?? '',
  };
}

/** The span of the address in seconds; null where it names none. */
export function addressedSpan() {
  const span = Number(wanted?.get('span'));
  return span > 0 ? span : null;
}

/** Write what is shown into the address, without an entry of the browser's history. */
export function note() {
  if (chosen.x === null || wanted) return;
  const query = new URLSearchParams({ critic: critic().name, x: String(chosen.x), y: String(chosen.y ?? '') });
  if (dim() > 2) query.set('at', Array.from({ length: dim() }, (_, k) => Number(chosen.at[k].toPrecision(4))).join());
  if (chosen.average) query.set('others', 'averaged');
  if (chosen.against) query.set('against', chosen.against);
  query.set('span', String(chosen.span));
  const hash = `#${query}`;
  if (hash !== location.hash) history.replaceState(null, '', hash);
}
