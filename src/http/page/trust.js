// One line that says whether to believe the values, why, and what to do about it: the daemon judges, this shows it.

import { unverified } from '/actions.js';
import { $, el, list, say } from '/dom.js';
import { chosen, critic, known } from '/known.js';
import { effect, kindOf, marks } from '/marks.js';

/** "14:02" @param {number} time Unix seconds */
const clock = (time) => new Date(1000 * time).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', hour12: false });

/** Whether the last adoption helped, in a sentence; empty without one. */
function adopted() {
  const last = marks().findLast((mark) => kindOf(mark) === 'adopted');
  if (!last || unverified()) return '';
  const found = effect(last) ?? 'too few returns since to say whether it helped';
  return `Generation ${last.generation}, adopted at ${clock(last.time)}: ${found}.`;
}

const upper = (/** @type {string} */ words) => `${words[0].toUpperCase()}${words.slice(1)}`;

/** What a daemon that no longer answers has said last: nothing says whether it still holds. @param {import('./status').TrustStatus} found */
function then({ sentence, reasons }) {
  const of = clock(known.status?.time ?? 0);
  return { level: 'wait', sign: '○', title: `As of ${of}; the daemon does not answer`, sentence: `It last said: ${sentence}`, reasons };
}

/** Show the line. */
export function trust() {
  /** @type {import('./status').TrustStatus | undefined} */
  const found = critic()?.trust?.[chosen.head];
  // Without a model there is nothing to believe, unless the daemon itself is in trouble.
  $('trust').hidden = !found || !(critic().kernel || found.reasons.length);
  if (!found || $('trust').hidden) return;
  const { level, sign, title, sentence, reasons } = known.lost === null ? found : then(found);
  $('trust').dataset.level = level;
  $('trust-sign').textContent = sign;
  // A screen reader hears of another level alone: the numbers change each second.
  say($('trust-said'), title);
  say($('trust-adopted'), critic().kernel ? adopted() : '');
  list($('trust-line'), [el('b', { textContent: `${title}. ` }), el('span', { textContent: sentence })]);
  list(
    $('trust-why'),
    reasons.map(({ text, remedy }) =>
      el('li', {}, el('b', { textContent: `${upper(text)}. ` }), el('span', { textContent: remedy })),
    ),
  );
}
