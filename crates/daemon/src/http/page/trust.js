// One line that says whether to believe the values, why, and what to do about it: the daemon judges, this shows it.

import { unverified } from '/actions.js';
import { $, el, list, say } from '/dom.js';
import { chosen, critic, known } from '/known.js';
import { effect, kindOf, marks } from '/marks.js';
import { duration, grouped } from '/words.js';

/** "14:02" @param {number} time Unix seconds */
const clock = (time) => new Date(1000 * time).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', hour12: false });

/** Whether the last adoption helped, in a sentence; empty without one. */
function adopted() {
  const last = marks().findLast((mark) => kindOf(mark) === 'adopted');
  if (!last || unverified()) return '';
  const found = effect(last) ?? 'too few returns since to say whether it helped';
  return `Generation ${last.generation}, adopted at ${clock(last.time)}: ${found}.`;
}

/** The selection that runs, or the critic of which none does; since when it does, and whether the page has seen it begin. */
let running = { of: '', since: 0, whole: false };

/** What becomes of the model next: how long a selection runs still, or when the next one is due; empty where one is made on request alone. */
function next() {
  const s = /** @type {import('/known.js').Status} */ (known.status);
  const { name, refit } = critic();
  if (refit.running) {
    const of = `${name} ${refit.started}`;
    // Nothing says when one began that ran already as the page was opened.
    if (running.of !== of) running = { of, since: s.time, whole: running.of === name };
    const so = s.time - running.since;
    const left = (refit.last?.seconds ?? 0) - so;
    const still = left >= 1 ? `, about ${duration(left)} left if it takes as long as the last one` : '';
    const spent = refit.spent === null ? '' : `, ${Math.round(100 * refit.spent)} % of its budget spent`;
    return `A model is being selected${spent}${running.whole ? `: ${duration(so)} so far${still}` : ''}.`;
  }
  running = { of: name, since: 0, whole: false };
  if (refit.next_at === null) return '';
  const rows = refit.next_at - s.offset;
  if (rows <= 0) return 'A model is due to be selected, and waits for its turn.';
  const seconds = rows / s.rows_per_second;
  // Streams that have stopped have no pace: some rows are overdue.
  const silent = s.time - Math.max(...Object.values(s.recent_streams).map((stream) => stream.last_seen));
  const when = seconds < 86400 && silent < 3 + 3 / s.rows_per_second ? `, in about ${duration(seconds)}` : '';
  return `The next model is selected after ${grouped(rows)} more rows${when}.`;
}

const upper = (/** @type {string} */ words) => `${words[0].toUpperCase()}${words.slice(1)}`;

/** What a daemon that no longer answers has said last: nothing says whether it still holds. @param {import('./status').TrustStatus} found */
function then({ sentence, reasons }) {
  const of = clock(known.status?.time ?? 0);
  return { level: 'wait', sign: '○', title: `As of ${of}; the daemon does not answer`, sentence: `It last said: ${sentence}`, reasons };
}

/** Show the line. */
export function trust() {
  $('ended').hidden = known.ended === null;
  say($('ended'), known.ended ?? '');
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
  say($('trust-next'), critic().kernel && known.lost === null ? next() : '');
  list($('trust-line'), [el('b', { textContent: `${title}. ` }), el('span', { textContent: sentence })]);
  list(
    $('trust-why'),
    reasons.map(({ text, remedy }) =>
      el('li', {}, el('b', { textContent: `${upper(text)}. ` }), el('span', { textContent: remedy })),
    ),
  );
}
