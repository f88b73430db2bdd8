// The heads of a critic: predictions beside its values. There may be thousands, so the list has a search field. First come those whose
// intervals hold worst, then the least known. A click shows the map of a head.

import { $, el, list, say } from '/dom.js';
import { chosen, critic, headKey, known, plain } from '/known.js';
import { show as redraw } from '/value.js';
import { format, grouped } from '/words.js';

/** Milliseconds between two questions about the same names. */
const EVERY_MS = 5000;

/** The heads of the last answer. @type {any[]} */
let listed = [];
let asked = { key: '', at: 0 };
let asking = false;
/** The head that has been asked about alone, for what it sums. */
let sought = '';
/** Called with the name of a head whose map is to be shown; null for the value's. */
let choose = (/** @type {?string} */ _name) => {};

/** "sum of speed", in words. @param {any} cumulant */
function sums(cumulant) {
  const [kind, of] = Object.entries(cumulant)[0];
  if (kind === 'Reward') return `reward ${of}`;
  if (kind === 'State') return plain(of);
  if (kind === 'NextState') return `next ${plain(of)}`;
  if (kind === 'Action') return `action ${of}`;
  if (kind === 'Expression') return of;
  if (kind === 'Label') return `labels ${of.name}`;
  if (kind === 'Event') return `${plain(of.index)} goes above ${format(of.above, 3)}`;
  if (kind === 'EventBelow') return `${plain(of.index)} goes below ${format(of.below, 3)}`;
  return format(of, 3);
}

/** "discount 0.9" @param {any} rate */
const reach = (rate) => ('Timescale' in rate ? `over ${format(rate.Timescale, 3)} s` : `discount ${format(rate.Discount, 3)}`);

/** A head to be shown. @param {string} name */
function button(name) {
  const pressed = String(chosen.named === name);
  return el('button', { type: 'button', textContent: name, data: { head: name }, 'aria-pressed': pressed });
}

/** "62 % of 120 returns in the 90 % interval as it was predicted" @param {number} coverage @param {number} pairs */
const covered = (coverage, pairs) => `${format(100 * coverage, 3)} % of ${grouped(pairs)} returns in the 90 % interval as it was predicted`;

/** The same, and the bias. @param {import('./status').VerifiedHead} head */
const verified = ({ coverage, pairs, bias }) => `${covered(coverage, pairs)} · bias ${format(bias, 2)}`;

/** The heads of which returns are known, those whose intervals hold worst first; the status names ten. */
function showWorst() {
  const { worst, verified: count } = critic().heads;
  const found = $('heads-find', HTMLInputElement).value.trim().toLowerCase();
  const shown = worst.filter((/** @type {any} */ { name }) => name.toLowerCase().includes(found));
  $('heads-verified').hidden = !shown.length;
  say($('heads-verified-note'), `Returns are known of ${grouped(count)} heads. The intervals of these hold worst:`);
  list(
    $('heads-worst'),
    shown.map((/** @type {any} */ head) => el('li', {}, button(head.name), el('span', { className: 'details', textContent: verified(head) }))),
  );
  mark();
}

/** Mark the head that is shown. */
function mark() {
  for (const each of $('heads').querySelectorAll('[data-head]')) each.setAttribute('aria-pressed', String(each.dataset.head === chosen.named));
}

/** "reward 1, discount 0.9 · 0.4, over states ± 0.2": what is said of a head that is listed. @param {any} head */
const details = ({ cumulant, rate, mean, spread, deviation, pairs, coverage }) =>
  `${sums(cumulant)}, ${reach(rate)} · ${format(mean, 3)}, over states ± ${format(spread, 2)}` +
  (deviation === null ? '' : ` · standard deviation ${format(deviation, 2)}`) +
  (pairs ? ` · ${covered(coverage, pairs)}` : '');

/** "12 % unknown"; empty where nothing is known of the variance. @param {any} head */
const little = ({ unknown }) => (unknown === null ? '' : `${format(100 * unknown, 2)} % unknown`);

/** Remember what heads sum: the map of one has that unit. @param {any[]} heads */
function learnUnits(heads) {
  const isNew = chosen.named !== null && !known.cumulants.has(headKey(chosen.named));
  for (const { name, cumulant } of heads) known.cumulants.set(headKey(name), cumulant);
  if (isNew && known.cumulants.has(headKey(String(chosen.named)))) redraw();
}

/** @param {any} answer */
function show(answer) {
  listed = answer.heads;
  const what = $('heads-find', HTMLInputElement).value.trim() ? `${grouped(answer.matching)} of ${grouped(answer.count)} found` : `${grouped(answer.count)} heads`;
  say($('heads-note'), `${what}; the least known first, judged at ${answer.states} visited states`);
  list(
    $('heads-list'),
    answer.heads.map((/** @type {any} */ head) =>
      el('li', {}, button(head.name), el('span', { textContent: little(head) }), el('span', { className: 'details', textContent: details(head) })),
    ),
  );
}

/** The heads of a critic whose names contain a text; null where the daemon gives none. @param {string} name @param {string} find */
async function found(name, find) {
  const reply = await fetch(`/api/heads?${new URLSearchParams({ critic: name, find })}`);
  const answer = reply.ok ? await reply.json() : null;
  if (answer && name === critic()?.name) learnUnits(answer.heads);
  return answer;
}

/** A head that is shown may not be among those that are listed: what it sums is asked for, once. @param {string} name of the critic */
async function seek(name) {
  const head = chosen.named;
  if (head === null || known.cumulants.has(headKey(head)) || sought === headKey(head)) return;
  await found(name, head);
  sought = headKey(head);
}

/** Ask for the heads where they may have changed. @param {boolean} [now] */
export async function learnHeads(now = false) {
  const { heads, name, generation } = critic();
  $('heads').hidden = !heads?.count;
  if ($('heads').hidden || document.hidden) return;
  showWorst();
  if (asking) return;
  const find = $('heads-find', HTMLInputElement).value.trim();
  const key = `${name} ${generation} ${find}`;
  if (!now && key === asked.key && Date.now() - asked.at < EVERY_MS) return;
  asking = true;
  asked = { key, at: Date.now() };
  try {
    const answer = await found(name, find);
    if (answer) show(answer);
    await seek(name);
  } catch {
    /* the event stream says that the daemon is away */
  }
  asking = false;
}

/** The heads that are listed as columns: those whose intervals hold worst, then the least known; null before there are any. */
export function headColumns() {
  /** @type {any[]} */
  const all = [...(critic()?.heads?.worst ?? []), ...listed];
  if (!all.length) return null;
  const keys = ['name', 'coverage', 'bias', 'pairs', 'mean', 'spread', 'deviation', 'unknown'];
  return Object.fromEntries(keys.map((key) => [key, all.map((head) => head[key] ?? null)]));
}

/** The heads in words, in the same order, for a picture. */
export function headRows() {
  const worst = critic()?.heads?.worst ?? [];
  return [
    ...worst.map((/** @type {any} */ head) => ({ words: [head.name, verified(head)] })),
    ...listed.map((head) => ({ words: [head.name, [little(head), details(head)].filter(Boolean).join(' · ')] })),
  ];
}

/** The controls, once. @param {(name: ?string) => void} choosing */
export function buildHeads(choosing) {
  choose = choosing;
  $('heads').addEventListener('click', (/** @type {any} */ e) => {
    const { head } = e.target.dataset;
    if (head === undefined) return;
    choose(head === chosen.named ? null : head);
    mark();
  });
  $('heads-find', HTMLInputElement).addEventListener('input', () => learnHeads(true));
}
