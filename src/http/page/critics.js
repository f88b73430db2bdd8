// The choice of a critic: a plain list of a few; a list of many has a search field and begins with the worst.

import { $, el, list, say } from '/dom.js';
import { chosen, critic, known } from '/known.js';
import { format, grouped } from '/words.js';

/** Critics from which on the list can be searched. */
const MANY = 12;
/** How many are listed at a time. */
const LISTED = 10;

/** The newest number of a series of a critic; null before there is one. @param {string} name @param {string} series */
function newest(name, series) {
  const values = known.history[`${name}.${series}`] ?? [];
  return values.at(-1) ?? null;
}

/**
 * The need of attention of a critic: highest for one that has failed, then by the share of returns outside of their intervals;
 * lowest without returns.
 * @param {import('/known.js').CriticStatus} each
 */
function badness(each) {
  if (each.failed) return 2;
  const covered = newest(each.name, 'coverage');
  return covered === null ? -1 : 1 - covered;
}

/** "71 % in the 90 % interval, error 0.3 · refit running" @param {any} each */
function words(each) {
  if (each.failed) return 'has stopped learning';
  const [covered, error] = [newest(each.name, 'coverage'), newest(each.name, 'error')];
  const known_ = covered === null ? 'not verified yet' : `${Math.round(100 * covered)} % in the 90 % interval, error ${format(error, 2)}`;
  const { refit } = each;
  const waits = !refit.running && refit.next_at !== null && refit.next_at <= (known.status?.offset ?? 0);
  return known_ + (refit.running ? ' · refit running' : waits ? ' · refit waits' : '');
}

/** Bring the list up to date. */
export function criticList() {
  const critics = known.status?.critics ?? [];
  const many = critics.length > MANY;
  $('critic-choice').hidden = many || critics.length < 2;
  $('critics').hidden = !many;
  if (!many) return;
  say($('critics-now'), critic().name);
  if (!$('critics').open) return;
  const wanted = $('critics-find').value.trim().toLowerCase();
  const found = critics.map((each, k) => ({ each, k, bad: badness(each) })).filter(({ each }) => each.name.toLowerCase().includes(wanted));
  const shown = found.sort((a, b) => b.bad - a.bad || a.k - b.k).slice(0, LISTED);
  const what = wanted ? `${grouped(found.length)} found` : `of ${grouped(critics.length)} critics`;
  say($('critics-note'), `${what}; fewest returns in their 90 % interval first`);
  const items = shown.map(({ each, k }) =>
    el(
      'li',
      {},
      el('button', { type: 'button', textContent: each.name, data: { k }, 'aria-pressed': String(k === chosen.critic) }),
      el('span', { className: 'details', textContent: words(each) }),
    ),
  );
  const focused = /** @type {any} */ (document.activeElement)?.dataset?.k;
  list($('critics-list'), items);
  if (focused !== undefined) $('critics-list').querySelector(`[data-k="${focused}"]`)?.focus();
}

/** The controls, once. @param {(k: number) => void} choose */
export function buildCritics(choose) {
  $('critics-find').addEventListener('input', criticList);
  $('critics').addEventListener('toggle', () => {
    criticList();
    if ($('critics').open) $('critics-find').focus();
  });
  $('critics').addEventListener('keydown', (/** @type {KeyboardEvent} */ e) => {
    if (e.key === 'Escape') $('critics').open = false;
    if (e.key === 'Enter' && e.target === $('critics-find')) $('critics-list').querySelector('button')?.click();
  });
  $('critics-list').addEventListener('click', (/** @type {any} */ e) => {
    const k = e.target.dataset?.k;
    if (k === undefined) return;
    $('critics').open = false;
    $('critics-list').dataset.text = '';
    $('critic').value = k;
    choose(Number(k));
  });
}
