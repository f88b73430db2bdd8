// The choice of a critic: a plain list of a few; a list of many has a search field and begins with the worst.

import { concerns, rank } from '/attention.js';
import { $, el, list, say } from '/dom.js';
import { chosen, critic, known, newest } from '/known.js';
import { format, grouped } from '/words.js';

/** Critics from which on the list can be searched. */
const MANY = 12;
/** How many are listed at a time. */
const LISTED = 10;

/** "71 % in the 90 % interval, error 0.3 · refit running" @param {import('/known.js').CriticStatus} each */
function words(each) {
  const found = concerns(each);
  const [covered, error] = [newest(each.name, 'coverage'), newest(each.name, 'error')];
  const known_ = covered === null ? 'not verified yet' : `${Math.round(100 * covered)} % in the 90 % interval, error ${format(error, 2)}`;
  const { refit } = each;
  const waits = !refit.running && refit.next_at !== null && refit.next_at <= (known.status?.offset ?? 0);
  const work = refit.running ? ['refit running'] : waits ? ['refit waits'] : [];
  return [...(each.failed ? [] : [known_]), ...found, ...work].join(' · ');
}

/** Say in the bar how many critics need attention. */
function attention() {
  const critics = known.status?.critics ?? [];
  const found = critics.filter((each) => concerns(each).length);
  $('attention', HTMLButtonElement).hidden = critics.length < 2 || !found.length;
  if ($('attention', HTMLButtonElement).hidden) return;
  say($('attention', HTMLButtonElement), `▲ ${grouped(found.length)} of ${grouped(critics.length)} critics ${found.length === 1 ? 'needs' : 'need'} attention`);
  $('attention', HTMLButtonElement).title = found
    .slice(0, LISTED)
    .map((each) => `${each.name}: ${concerns(each).join(', ')}`)
    .join('\n');
}

/** Bring the list up to date. */
export function criticList() {
  const critics = known.status?.critics ?? [];
  const many = critics.length > MANY;
  attention();
  $('critic-choice').hidden = many || critics.length < 2;
  $('critics', HTMLDetailsElement).hidden = !many;
  if (!many) return;
  say($('critics-now'), critic().name);
  if (!$('critics', HTMLDetailsElement).open) return;
  const wanted = $('critics-find', HTMLInputElement).value.trim().toLowerCase();
  const found = critics.map((each, k) => ({ each, k, bad: rank(each) })).filter(({ each }) => each.name.toLowerCase().includes(wanted));
  const shown = found.sort((a, b) => b.bad - a.bad || a.k - b.k).slice(0, LISTED);
  const what = wanted ? `${grouped(found.length)} found` : `of ${grouped(critics.length)} critics`;
  say($('critics-note'), `${what}; those that need attention first, then fewest returns in their 90 % interval`);
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
  $('critics-find', HTMLInputElement).addEventListener('input', criticList);
  $('critics', HTMLDetailsElement).addEventListener('toggle', () => {
    criticList();
    if ($('critics', HTMLDetailsElement).open) $('critics-find', HTMLInputElement).focus();
  });
  $('critics', HTMLDetailsElement).addEventListener('keydown', (/** @type {KeyboardEvent} */ e) => {
    if (e.key === 'Escape') $('critics', HTMLDetailsElement).open = false;
    if (e.key === 'Enter' && e.target === $('critics-find', HTMLInputElement)) $('critics-list').querySelector('button')?.click();
  });
  $('critics-list').addEventListener('click', (/** @type {any} */ e) => {
    const k = e.target.dataset?.k;
    if (k === undefined) return;
    $('critics', HTMLDetailsElement).open = false;
    $('critics-list').dataset.text = '';
    $('critic', HTMLSelectElement).value = k;
    choose(Number(k));
  });
  // The worst of a few is chosen; of many they are listed.
  $('attention', HTMLButtonElement).addEventListener('click', () => {
    if (!$('critics', HTMLDetailsElement).hidden) {
      $('critics', HTMLDetailsElement).open = true;
      return;
    }
    const critics = known.status?.critics ?? [];
    const ranks = critics.map(rank);
    const worst = ranks.indexOf(Math.max(...ranks));
    $('critic', HTMLSelectElement).value = String(worst);
    choose(worst);
  });
}
