// The heads of a critic: predictions beside its values. There may be thousands, so the list has a search field; the least known come first.

import { $, el, list, say } from '/dom.js';
import { critic, plain } from '/known.js';
import { format, grouped } from '/words.js';

/** Milliseconds between two questions about the same names. */
const EVERY_MS = 5000;

let asked = { key: '', at: 0 };
let asking = false;

/** "sum of speed", in words. @param {any} cumulant */
function sums(cumulant) {
  const [kind, of] = Object.entries(cumulant)[0];
  if (kind === 'Reward') return `reward ${of}`;
  if (kind === 'State') return plain(of);
  if (kind === 'NextState') return `next ${plain(of)}`;
  if (kind === 'Action') return `action ${of}`;
  if (kind === 'Expression') return of;
  if (kind === 'Event') return `${plain(of.index)} goes above ${format(of.above, 3)}`;
  return format(of, 3);
}

/** "discount 0.9" @param {any} rate */
const reach = (rate) => ('Timescale' in rate ? `over ${format(rate.Timescale, 3)} s` : `discount ${format(rate.Discount, 3)}`);

/** @param {any} answer */
function show(answer) {
  const what = $('heads-find').value.trim() ? `${grouped(answer.matching)} of ${grouped(answer.count)} found` : `${grouped(answer.count)} heads`;
  say($('heads-note'), `${what}; the least known first, judged at ${answer.states} visited states`);
  list(
    $('heads-list'),
    answer.heads.map(({ name, cumulant, rate, mean, spread, deviation, unknown }) =>
      el(
        'li',
        {},
        el('b', { textContent: name }),
        el('span', { textContent: unknown === null ? '' : `${format(100 * unknown, 2)} % unknown` }),
        el('span', {
          className: 'details',
          textContent:
            `${sums(cumulant)}, ${reach(rate)} · ${format(mean, 3)}, over states ± ${format(spread, 2)}` +
            (deviation === null ? '' : ` · standard deviation ${format(deviation, 2)}`),
        }),
      ),
    ),
  );
}

/** Ask for the heads where they may have changed. @param {boolean} [now] */
export async function learnHeads(now = false) {
  const { heads, name, generation } = critic();
  $('heads').hidden = !heads?.count;
  if ($('heads').hidden || asking || document.hidden) return;
  const find = $('heads-find').value.trim();
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

/** The control, once. */
export function buildHeads() {
  $('heads-find').addEventListener('input', () => learnHeads(true));
}
