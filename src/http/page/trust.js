// One line that says whether to believe the values, why, and what to do about it.

import { quality } from '/calibration.js';
import { $, el, list } from '/dom.js';
import { chosen, critic, known } from '/known.js';
import { marks, unlike } from '/marks.js';
import { format, grouped } from '/words.js';

/** Pairs of the model in use below which nothing is concluded from them. */
const PAIRS_MIN = 30;
/** The newest pairs that are judged. */
const LATEST = 100;
/** Seconds for which rows that were refused keep the line amber. */
const REFUSED_S = 600;
/** Seconds for which a change of single streams is shown: no model follows those. */
const STREAM_DRIFT_S = 600;
/** What changes of the world lead to, in turn: the last of these says how things stand. */
const FOLLOWS = ['drift', 'forked', 'swapped', 'returned', 'dismissed', 'adopted', 'new_policy'];

/** @typedef {{level: 'bad' | 'warn', text: string, remedy: string}} Reason */

/** Whether the returns contradict the model: the error that too few or dependent pairs make by chance is allowed for. */
function ofReturns(/** @type {ReturnType<typeof quality>} */ found, /** @type {number} */ scatter) {
  /** @type {Reason[]} */
  const out = [];
  // Returns of neighbouring rows overlap: a quarter of them counts as independent.
  const n = found.count / 4;
  const reach = 2.5 * Math.sqrt((0.9 * 0.1) / n);
  if (found.within < 0.9 - Math.max(0.05, reach)) {
    out.push({
      level: 'warn',
      text: `only ${Math.round(100 * found.within)} % of the last ${found.count} returns fell in their 90 % interval`,
      remedy: 'Read the deviations as too small. A refit (criticd refit) or a larger dictionary_max may mend it.',
    });
  }
  const bias = Math.abs(found.bias);
  if (bias > (3 * scatter) / Math.sqrt(n) && bias > 0.4 * found.rms) {
    out.push({
      level: 'warn',
      text: `values are too ${found.bias < 0 ? 'high' : 'low'} by ${format(bias, 2)} on average`,
      remedy: 'See the worst states below. If the policy has changed, send its name (policy) or set forgetting.',
    });
  }
  return out;
}

/** Rows refused within the last minutes. */
function refusedLately() {
  const { refused, time } = known.history;
  if (!refused?.length) return 0;
  const last = refused.at(-1) ?? 0;
  const from = /** @type {number} */ (time.at(-1)) - REFUSED_S;
  // All of them where the daemon has run for less than that: it starts without any.
  const k = time.findIndex((t) => t !== null && t >= from);
  const before = k > 0 ? (refused[k] ?? 0) : 0;
  return last - before;
}

/** Reasons that the daemon itself gives. */
function ofDaemon() {
  const s = /** @type {import('/known.js').Status} */ (known.status);
  /** @type {Reason[]} */
  const out = [];
  const failed = critic()?.failed;
  if (failed) out.push({ level: 'bad', text: `this critic has stopped learning: ${failed}`, remedy: 'See the log.' });
  if (s.read_only) {
    // The daemon then has the last copy of the rows.
    const last = /deleted or replaced|are missing/.test(s.read_only);
    const remedy = last
      ? 'Do not stop or restart it: docs/operations.md, "Deleted files".'
      : 'Mend the cause, such as a full disk. The daemon tries again every second; it needs no restart.';
    out.push({ level: 'bad', text: `nothing can be stored: ${s.read_only}`, remedy });
  }
  const failing = s.journal?.checkpoint_failure;
  if (!s.read_only && failing) {
    out.push({
      level: 'warn',
      text: `no checkpoint can be written: ${failing}`,
      remedy: 'Rows are stored, and a restart would learn them again. Mend the cause; the next checkpoint comes with more rows, or at the stop.',
    });
  }
  const refused = refusedLately();
  if (refused > 0) {
    const codes = Object.entries(s.rejected).sort((a, b) => b[1] - a[1]);
    // Those of an earlier run have no codes.
    const code = codes.length ? ` (${codes[0][0]})` : '';
    out.push({
      level: 'warn',
      text: `${refused === 1 ? '1 message was' : `${grouped(refused)} messages were`} refused in the last 10 minutes${code}`,
      remedy: REMEDIES[codes[0]?.[0]] ?? 'The log names the stream and the field: criticd quarantine list.',
    });
  }
  return out;
}

/** @type {Record<string, string>} */
const REMEDIES = {
  wrong_dimension: 'Correct the sender whose states have another length. If all states have it from now on, criticd reset starts over.',
  fenced: 'Two programs send under one stream name. Give each its own.',
};

/** The alarm that no model has answered yet; null without one. */
function drifting() {
  const last = marks().findLast((mark) => FOLLOWS.includes(mark.event));
  const drift = marks().findLast((mark) => mark.event === 'drift');
  if (!drift || !['drift', 'forked'].includes(last?.event)) return null;
  const single = drift.streams?.length > 0;
  if (single && Date.now() / 1000 - drift.time > STREAM_DRIFT_S) return null;
  return { drift, single };
}

/** @returns {Reason[]} */
function ofWorld() {
  const now = drifting();
  if (!now) return [];
  const remedy = now.single
    ? 'Look at those streams: a sensor may be broken.'
    : 'A second model is learning the new rows and takes over once it predicts better.';
  return [{ level: 'warn', text: unlike(now.drift), remedy }];
}

/** The pairs that speak of the model in use; those of all models while it has too few. */
function judged() {
  const pairs = known.calibration[chosen.critic]?.pairs ?? [];
  const own = pairs.filter((pair) => pair[4] === critic().generation);
  return (own.length >= PAIRS_MIN ? own : pairs).slice(-LATEST);
}

/** "nothing has drifted since 14:02" */
function quiet() {
  const drift = marks().findLast((mark) => mark.event === 'drift');
  const s = /** @type {import('/known.js').Status} */ (known.status);
  const since = new Date(1000 * (drift?.time ?? s.time - s.uptime_s));
  const time = since.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', hour12: false });
  return `${drift ? 'no further drift' : 'nothing has drifted'} since ${time}`;
}

/** The level of trust, the sentence, and the reasons. */
function judge() {
  const pairs = judged();
  const enough = pairs.length >= PAIRS_MIN;
  const found = quality(pairs);
  // The scatter that the model itself states: half the width of the intervals.
  const scatter = pairs.reduce((sum, pair) => sum + pair[2], 0) / Math.max(pairs.length, 1);
  const reasons = [...ofDaemon(), ...ofWorld(), ...(enough ? ofReturns(found, scatter) : [])];
  const words = [];
  if (enough) {
    words.push(`Values are right to about ${format(found.rms, 2)}`);
    words.push(`${Math.round(100 * found.within)} % of returns fell in their 90 % interval`);
  } else {
    words.push(`Not verified yet: ${pairs.length} of ${PAIRS_MIN} returns are known`);
  }
  const { provisional } = critic();
  if (provisional) words.push('no refit has chosen this model yet, so that its deviations are rough');
  if (!ofWorld().length) words.push(quiet());
  const worst = reasons.some((reason) => reason.level === 'bad') ? 'bad' : reasons.length ? 'warn' : null;
  return { level: worst ?? (enough && !provisional ? 'good' : 'wait'), sentence: `${words.join('; ')}.`, reasons };
}

/** @type {Record<string, [string, string]>} */
const SIGNS = {
  good: ['●', 'The values can be believed'],
  wait: ['○', 'The values have not been verified yet'],
  warn: ['▲', 'Believe the values with care'],
  bad: ['■', 'Do not believe the values'],
};

/** Show the line. */
export function trust() {
  const ready = Boolean(critic()?.kernel) || ofDaemon().length > 0;
  $('trust').hidden = !ready;
  if (!ready) return;
  const { level, sentence, reasons } = critic().kernel
    ? judge()
    : { level: 'warn', sentence: 'There is no model yet.', reasons: ofDaemon() };
  $('trust').dataset.level = level;
  const [sign, title] = SIGNS[level];
  $('trust-sign').textContent = sign;
  list($('trust-line'), [el('b', { textContent: `${title}. ` }), el('span', { textContent: sentence })]);
  list(
    $('trust-why'),
    reasons.map(({ text, remedy }) =>
      el('li', {}, el('b', { textContent: `${text[0].toUpperCase()}${text.slice(1)}. ` }), el('span', { textContent: remedy })),
    ),
  );
}
