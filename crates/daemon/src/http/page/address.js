// The address of what is shown: critic, reward, axes and their part, where the other variables stand, stream, row looked back on and length of its trajectory, kind of error, time span. It can be shared.

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

/** What the address asks for, once there is a model: axes [x, y], a part of them and the state (D,), null where it names none, whether
 * the others are averaged over, which generation is shown and what it is compared with, which reward or head, the kind of error, and what is planned and predicted. */
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
  const [, discount, reward] = /^([^:]*):(.*)$/.exec(asked.get('plan') ?? '') ?? [];
  const [steps, from] = [asked.get('course'), asked.get('from') ?? ''];
  const ends = (asked.get('part') ?? '').split(',').map(Number);
  const part = y === null ? [ends.slice(0, 2)] : [ends.slice(0, 2), ends.slice(2)];
  const isPart = part.every(([low, high]) => low < high) && ends.length === 2 * part.length;
  return {
    axes: x === null || x === y ? null : [x, y],
    part: x !== null && isPart ? part : null,
    state,
    average: asked.get('others') === 'averaged',
    against: asked.get('against') ?? '',
    earlier: wholeNumber(asked.get('generation')),
    then: wholeNumber(asked.get('then')),
    reward: Math.max(Math.trunc(Number(asked.get('reward'))) || 0, 0),
    named: asked.get('head'),
    error: asked.get('error') === 'td' ? 'td' : 'error',
    plan: reward === undefined ? null : { reward, discount },
    course: steps === null ? null : { steps, from, policy: /^(best|plan)$/.exec(asked.get('policy') ?? '')?.[0] ?? 'acted', also: asked.get('also') ?? '' },
  };
}

/** The stream whose trajectory is shown, in the address; null where the newest is. @type {?string} */
let stream = wanted?.get('stream') ?? null;

/** The stream of the address. */
export const addressedStream = () => stream;

/** Up to which row that trajectory is looked back on, and how much of it is shown; null where the address does not say. */
let row = wholeNumber(wanted?.get('row'));
let last = wanted?.get('last') ?? null;

/** A whole number of the address. @param {?string | undefined} text @returns {?number} */
function wholeNumber(text) {
  return text && /^\d{1,15}$/.test(text) ? Number(text) : null;
}

/** The row that the address looks back on. */
export const addressedRow = () => row;
/** How much of the trajectory the address shows. */
export const addressedLast = () => last;

/** The reader has chosen a stream, a row to look back on, or how much is shown of it. @param {?string} name @param {?number} until @param {string} length */
export function noteStream(name, until, length) {
  [stream, row, last] = [name, until, length];
  note();
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
  if (chosen.part) query.set('part', chosen.part.flat().map((v) => Number(v.toPrecision(5))).join());
  if (chosen.average) query.set('others', 'averaged');
  if (chosen.earlier !== null) query.set('generation', String(chosen.earlier));
  if (chosen.then !== null) query.set('then', String(chosen.then));
  if (chosen.against) query.set('against', chosen.against);
  if (chosen.head) query.set('reward', String(chosen.head));
  if (chosen.named) query.set('head', chosen.named);
  if (chosen.error !== 'error') query.set('error', chosen.error);
  if (chosen.plan) query.set('plan', `${chosen.plan.discount}:${chosen.plan.reward}`);
  if (chosen.course) {
    query.set('course', chosen.course.steps);
    for (const key of /** @type {const} */ (['policy', 'from', 'also'])) if (chosen.course[key]) query.set(key, chosen.course[key]);
  }
  if (stream !== null) query.set('stream', stream);
  if (row !== null) query.set('row', String(row));
  if (last !== null && last !== 'automatic') query.set('last', last);
  query.set('span', String(chosen.span));
  const hash = `#${query}`;
  if (hash !== location.hash) history.replaceState(null, '', hash);
}
