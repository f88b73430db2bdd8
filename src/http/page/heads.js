// The heads of a critic: predictions beside its values. There may be thousands, so the list has a search field. First come those whose
// intervals hold worst, then the least known. A click shows the map of a head.

import { $, el, list, say } from '/dom.js';
import { chosen, critic, plain } from '/known.js';
import { format, grouped } from '/words.js';

/** Milliseconds between two questions about the same names. */
const EVERY_MS = 5000;

/** The heads of the last answer. @type {any[]} */
let listed = [];
let asked = { key: '', at: 0 };
let asking = false;
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

/** @param {any} answer */
function show(answer) {
  listed = answer.heads;
  const what = $('heads-find', HTMLInputElement).value.trim() ? `${grouped(answer.matching)} of ${grouped(answer.count)} found` : `${grouped(answer.count)} heads`;
  say($('heads-note'), `${what}; the least known first, judged at ${answer.states} visited states`);
  list(
    $('heads-list'),
    answer.heads.map((/** @type {any} */ { name, cumulant, rate, mean, spread, deviation, unknown, pairs, coverage }) =>
      el(
        'li',
        {},
        button(name),
        el('span', { textContent: unknown === null ? '' : `${format(100 * unknown, 2)} % unknown` }),
        el('span', {
          className: 'details',
          textContent:
            `${sums(cumulant)}, ${reach(rate)} · ${format(mean, 3)}, over states ± ${format(spread, 2)}` +
            (deviation === null ? '' : ` · standard deviation ${format(deviation, 2)}`) +
            (pairs ? ` · ${covered(coverage, pairs)}` : ''),
        }),
      ),
    ),
  );
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
    const reply = await fetch(`/api/heads?${new URLSearchParams({ critic: name, find })}`);
    if (reply.ok) show(await reply.json());
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
