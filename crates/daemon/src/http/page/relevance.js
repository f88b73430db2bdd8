// How much of the value hangs on each state variable: its share of the variance of V over visited states.

import { ofActions } from '/actions.js';
import { $, el, list, say } from '/dom.js';
import { lengthscale, relevances } from '/kernel.js';
import { chosen, critic, dim, plain, variable } from '/known.js';
import { adoption } from '/marks.js';
import { format } from '/words.js';

/** Milliseconds after which shares are asked for again under the same model: at first soon, since a young model learns much. */
const AGE_MIN_MS = 2_000;
const AGE_MAX_MS = 60_000;
/** Variables that are shown. */
const ROWS_SHOWN = 12;
/** Findings of a refit that are shown unfolded. */
const FINDINGS_SHOWN = 4;

/** The last answer, what it was about, and since when that is asked for. @type {{key: string, since: number, at: number, shares: ?(?number)[], tried: number}} */
let answer = { key: '', since: 0, at: 0, shares: null, tried: 0 };
let asking = false;

/** The shares of the chosen critic, null for variables that were not examined, of values of actions the action's last; null before they are known. */
export const shares = () => (answer.key.startsWith(`${critic()?.name} ${chosen.head} `) ? answer.shares : null);
/** Whether to go on without them: the daemon is too busy to give them. */
export const withoutShares = () => answer.tried > 3;

/** Ask for the shares where the model has changed. */
export async function learnShares() {
  const { name, generation } = critic();
  const key = `${name} ${chosen.head} ${generation}`;
  const known = answer.key === key && answer.shares;
  const age = Math.min(Math.max(answer.at - answer.since, AGE_MIN_MS), AGE_MAX_MS);
  if (asking || document.hidden || !generation || (known && Date.now() - answer.at < age)) return;
  asking = true;
  try {
    const query = new URLSearchParams({ critic: name, head: String(chosen.head) });
    const reply = await fetch(`/api/relevance?${query}`);
    if (reply.ok) {
      const at = Date.now();
      answer = { key, since: known ? answer.since : at, at, shares: (await reply.json()).shares, tried: 0 };
    } else answer.tried += 1;
  } catch {
    /* the event stream says that the daemon is away */
  }
  asking = false;
}

/** State variables, the most relevant first: by their shares, or by the kernel before those are known. */
export function ranked() {
  const a = relevances();
  const s = shares();
  const share = (/** @type {number} */ k) => s?.[k] ?? -1;
  // Coordinates of actions are no variables of the state.
  const states = a.slice(0, dim());
  return states.map((_, k) => k).sort((i, j) => share(j) - share(i) || a[j] - a[i] || i - j);
}

/** The name of a variable; that behind the last one is the action. @param {number} k */
const named = (k) => (k < dim() ? variable(k) : 'action');

/** The shares as columns; null before they are known. */
export function shareColumns() {
  const share = shares();
  // The kernel has a relevance of each coordinate of an action.
  return share && { variable: share.map((_, k) => named(k)), share, relevance: share.map((_, k) => (k < dim() ? relevances()[k] : null)) };
}

/** @param {number} share */
const percent = (share) => (share < 0.01 ? '< 1 %' : `${Math.round(100 * share)} %`);

/** The shares in words, for a picture. */
export function shareRows() {
  const share = shares() ?? [];
  const shown = [...ranked().slice(0, ROWS_SHOWN), ...(share.length > dim() ? [dim()] : [])];
  return shown.map((k) => ({ words: [`${named(k)}: ${percent(share[k] ?? 0)}`], share: share[k] ?? 0 }));
}

/** A bar for each variable, and what the last refit found. */
export function relevanceCard() {
  const a = relevances();
  const share = shares();
  const { inputs, kernel } = critic();
  const report = adoption() ?? {};
  const support = report.evidence_drop ?? [];
  const shown = ranked().slice(0, ROWS_SHOWN);
  const more = dim() - shown.length;
  if (share && share.length > dim()) shown.push(dim());
  say($('relevance-of'), ofActions() ? ' of the actions taken' : '');
  const box = $('relevance');
  if (box.childElementCount !== shown.length || box.dataset.shown !== shown.join()) {
    box.dataset.shown = shown.join();
    box.replaceChildren(
      ...shown.map(() =>
        el(
          'div',
          { className: 'relevance-row' },
          el('b'),
          el('span', { className: 'numbers' }),
          el('span', { className: 'track' }, el('i')),
        ),
      ),
    );
  }
  shown.forEach((k, row) => {
    const [name, numbers, track] = box.children[row].children;
    say(name, named(k));
    const length = k < dim() ? lengthscale({ kernel, scale: inputs.scale }, k) : null;
    const nats = typeof support[k] === 'number' ? ` · ${format(support[k], 3)} nats` : '';
    const scale = k >= dim() ? '' : length === null ? 'category' : `lengthscale ${format(length, 3)}`;
    const part = share?.[k];
    const none = typeof part === 'number' ? part < 0.01 : a[k] < 1e-6;
    const label = typeof part === 'number' ? percent(part) : 'not examined';
    numbers.replaceChildren(el('b', { textContent: share ? label : '' }), el('small', { textContent: ` ${scale}${nats}` }));
    box.children[row].classList.toggle('off', none);
    track.firstChild.style.width = `${100 * (part ?? 0)}%`;
  });
  const sentences = report.relevance_report ?? [];
  // Shares say what matters; the sentences of a refit stand with the model.
  const words = [...(report.findings ?? []), ...sentences.slice(0, ROWS_SHOWN)];
  (sentences.length ? [] : (kernel.factors ?? [])).forEach((/** @type {number[]} */ factor, /** @type {number} */ j) => {
    const parts = factor
      .map((f, /** @type {number} */ k) => [f, k])
      .sort((/** @type {number[]} */ x, /** @type {number[]} */ y) => Math.abs(y[0]) - Math.abs(x[0]))
      .slice(0, 4);
    words.push(`direction ${j + 1}: ${parts.map((/** @type {number[]} */ [f, k]) => `${format(f, 2)} ${plain(k)}`).join(', ')}`);
  });
  say($('relevance-more'), more > 0 ? `${more} variables with smaller shares are not shown.` : '');
  const items = words.map((each) => el('li', { textContent: each }));
  list($('findings'), items.slice(0, FINDINGS_SHOWN));
  $('findings-more', HTMLDetailsElement).hidden = items.length <= FINDINGS_SHOWN;
  say($('findings-count'), `${items.length - FINDINGS_SHOWN} more`);
  list($('findings-rest'), items.slice(FINDINGS_SHOWN));
}
