// The model, the streams, and the numbers in the bar.

import { $, el, facts, list, say, small } from '/dom.js';
import { term } from '/glossary.js';
import { critic, inUnit, known, plain } from '/known.js';
import { period } from '/kernel.js';
import { kernelName } from '/marks.js';
import { bytes, duration, format, grouped } from '/words.js';

/** "from 431 verified pairs; 82 % were in the 90 % interval before" */
function verified(/** @type {import('./status').ReturnsStatus} */ { pairs, coverage }) {
  if (!pairs) return 'not verified yet';
  const before = typeof coverage === 'number' ? `; ${format(100 * coverage, 3)} % in the 90 % interval before the correction` : '';
  return `from ${grouped(pairs)} verified pairs${before}`;
}

/** "follows: the last 500 rows; 83 % let in", where a gate is open. @returns {any[] | null} */
function follows(/** @type {any} */ c) {
  const open = (c.drift?.tracking?.gate ?? []).map((/** @type {number} */ gate, /** @type {number} */ h) => ({ gate, rows: c.drift.tracking.half_life[h] }));
  const widest = open.filter((/** @type {any} */ of) => of.gate > 0).sort((/** @type {any} */ a, /** @type {any} */ b) => b.gate - a.gate)[0];
  if (!widest) return null;
  const rows = `half-life of ${grouped(widest.rows)} ${widest.rows === 1 ? 'row' : 'rows'}`;
  return [term('tracking', 'follows'), rows, small(`${format(100 * widest.gate, 3)} % of what it adds is let in`)];
}

/** What an alarm says now, and what has come of those before. @returns {any[]} */
function foretold(/** @type {import('./status').AlarmStatus} */ a) {
  const words = a.head ? `alarm about ${a.head}` : 'alarm';
  if (a.unknown) return [term('alarm', words), 'no such head', small('declare it, or mend alarm in the settings')];
  if (a.missing > 0) {
    const fell = a.fell ? `; ${grouped(a.fell)} of ${grouped(a.fell + a.stayed)} were below` : '';
    return [term('alarm', words), 'not yet', small(`return below ${format(a.below)}; ${grouped(a.missing)} more at or above it must come first${fell}`)];
  }
  const known = a.hits + a.mistaken;
  const said = [`return below ${format(a.below)}`, `${grouped(a.raised)} raised`];
  if (known) said.push(`${grouped(a.hits)} of ${grouped(known)} right`);
  if (typeof a.lead_rows === 'number') {
    const seconds = typeof a.lead_s === 'number' ? ` (${duration(a.lead_s)})` : '';
    said.push(`${format(a.lead_rows, 2)} rows${seconds} ahead`);
  }
  if (a.fell) said.push(`${grouped(a.missed)} of ${grouped(a.fell)} low returns missed`);
  if (typeof a.false_share === 'number') {
    said.push(`on before ${format(100 * a.false_share, 2)} % of the other returns, ${format(100 * a.false_alarms, 2)} % asked for`);
  }
  const where = a.streams.join(', ') + (a.on > a.streams.length ? ` and ${grouped(a.on - a.streams.length)} more` : '');
  return [term('alarm', words), a.on ? `on: ${where}` : 'off', small(said.join(' · '))];
}

/** What the model is: words, numbers, and remarks. @returns {any[]} */
function modelFacts() {
  const c = critic();
  const { kernel, noise, refit } = c;
  return [
    [
      term('generation'),
      String(c.generation),
      small(`since the start ${refit.adopted} adopted, ${refit.rejected} rejected` + (refit.failed ? `, ${refit.failed} failed` : '')),
    ],
    [term('dictionary'), grouped(c.dictionary_size), small(`of at most ${grouped(c.dictionary_max)} states`)],
    ['rows in the model', grouped(c.transitions)],
    [term('discount'), format(c.discount), c.lambda === undefined ? null : small(`λ ${format(c.lambda, 3)}`)],
    c.returns
      ? [
          term('return', 'returns'),
          `std × ${format(c.returns.factor, 3)}`,
          small(verified(c.returns)),
        ]
      : null,
    follows(c),
    ...(c.alarms ?? []).map(foretold),
    [
      term('kernel'),
      kernelName(kernel),
      small(
        `std ${format(Math.sqrt(kernel.signal_variance), 3)}` +
          (kernel.bias_variance > 0 ? ` · offset ${format(Math.sqrt(kernel.bias_variance), 3)}` : ''),
      ),
    ],
    [term('noise'), `std ${format(Math.sqrt(noise.variance), 3)}`, small(noise.model)],
  ].filter(Boolean);
}

/** How the model was chosen and how it runs: nothing here says whether to believe it. @returns {any[]} */
function modelDetails() {
  const c = critic();
  const pause = c.adoption_pause_ms;
  return [
    typeof c.log_evidence === 'number'
      ? [term('evidence', 'log evidence'), format(c.log_evidence), small('nats')]
      : typeof c.held_out_error === 'number'
        ? [term('heldout', 'held-out error'), format(c.held_out_error, 3), small('a constant has 1')]
        : null,
    [term('score', 'log score'), format(c.score_recent), small('nats per row, recent')],
    [term('chain', 'running chains'), grouped(c.running_chains)],
    pause.count
      ? ['adoption pause', `${format(pause.p50, 2)} ms`, small(`median, ${format(pause.max, 2)} ms at most`)]
      : null,
    c.actions && !c.actions.world ? ['what if', 'off', small('world = true in the settings of the critic learns where actions lead, from the next refit on')] : null,
    ['memory', bytes(c.bytes), small(`model · ${bytes(known.history.resident_bytes.at(-1) ?? NaN)} process`)],
  ].filter(Boolean);
}

/** What the model assumes beside its kernel, where something was chosen: lines beyond the rows, and what goes round. @returns {string[]} */
function shape() {
  const { inputs, kernel } = critic();
  const lines = (kernel.columns ?? []).filter((/** @type {string} */ each) => /^[lb]/.test(each));
  const along = lines.map((/** @type {string} */ each) => plain(Number(each.split(':')[1]))).join(', ');
  const round = inputs.scale.map((/** @type {number} */ _, /** @type {number} */ k) => k).filter((/** @type {number} */ k) => Number.isFinite(period(k)));
  return [
    along ? `Where no row has been, the value goes on as a line along ${along}${lines[0] < 'l' ? ', up to four deviations from the mean' : ''}.` : '',
    round.length ? `${round.map((/** @type {number} */ k) => `${plain(k)} repeats after ${inUnit(k, format(period(k), 3))}`).join(', ')}.` : '',
  ].filter(Boolean);
}

function modelSentence() {
  const c = critic();
  const full = c.dictionary_size >= c.dictionary_max ? ', its limit' : '';
  return [`Made of ${grouped(c.transitions)} rows; it remembers ${grouped(c.dictionary_size)} states${full}.`, ...shape()].join(' ');
}

export function modelCard() {
  say($('model-plain'), modelSentence());
  $('provisional').hidden = !critic().provisional;
  facts($('model'), modelFacts());
  facts($('model-details'), modelDetails());
}

/** The facts of the model as columns, then what its last refit found; null before there is a model. */
export function modelColumns() {
  if (!critic()?.kernel) return null;
  const words = (/** @type {any} */ said) => (said?.textContent ?? said ?? '').trim();
  const rows = [...modelFacts(), ...modelDetails()].map((each) => each.map(words));
  const findings = [...$('findings').children, ...$('findings-rest').children].map((each) => ['finding', words(each), '']);
  const all = [...rows, ...findings];
  return { fact: all.map(([fact]) => fact), value: all.map(([, value]) => value), remark: all.map(([, , remark]) => remark ?? '') };
}

/** Refused messages as columns; null where there are none. */
export function refusedColumns() {
  const refused = Object.entries(known.status?.rejected ?? {});
  return refused.length ? { reason: refused.map(([code]) => code), messages: refused.map(([, count]) => count) } : null;
}

export function vitals() {
  const s = /** @type {import('/known.js').Status} */ (known.status);
  const list_ = [
    ['rows', grouped(s.offset)],
    ['rows/s', grouped(s.rows_per_second)],
    [s.streams === 1 ? 'stream' : 'streams', grouped(s.streams)],
    ['up', duration(s.uptime_s)],
  ];
  const refused = Object.values(s.rejected).reduce((sum, n) => sum + n, 0);
  const due = s.critics.filter(({ refit }) => !refit.running && refit.next_at !== null && refit.next_at <= s.offset);
  const running = s.critics.filter(({ refit }) => refit.running);
  if (s.critics.length > 1 && running.length) {
    list_.push(['refits wait', grouped(due.length)]);
  }
  if (refused) list_.push(['refused', grouped(refused)]);
  list(
    $('vitals'),
    list_.map(([term, value]) => el('div', {}, el('dt', { textContent: term }), el('dd', { textContent: value }))),
  );
  say($('version'), `criticd ${s.version}`);
}

/** The streams as columns; null before there is one. */
export function streamColumns() {
  const rows = Object.entries(known.status?.recent_streams ?? {}).sort(([a], [b]) => (a < b ? -1 : 1));
  if (!rows.length) return null;
  const of = (/** @type {'session' | 'next_seq' | 'rows' | 'last_seen'} */ key) => rows.map(([, stream]) => stream[key]);
  return { stream: rows.map(([name]) => name), session: of('session'), next_seq: of('next_seq'), rows: of('rows'), last_seen: of('last_seen') };
}

/** "8 s ago" @param {import('/known.js').Status} status @param {number} seen */
function ago(status, seen) {
  const seconds = Math.max(0, status.time - seen);
  return seconds < 1.5 ? 'now' : `${duration(seconds)} ago`;
}

/** The name of each stream, its last seq, its rows, and when it was seen. @returns {string[][]} */
function streamWords() {
  const status = /** @type {import('/known.js').Status} */ (known.status);
  const rows = Object.entries(status.recent_streams).sort(([a], [b]) => (a < b ? -1 : 1));
  return rows.map(([name, s]) => [name, grouped(s.next_seq - 1), grouped(s.rows), ago(status, s.last_seen)]);
}

/** The streams in words, for a picture. */
export const streamRows = () =>
  (known.status ? streamWords() : []).map(([name, seq, rows, seen]) => ({ words: [name, `last seq ${seq} · ${rows} rows · seen ${seen}`] }));

export function streams() {
  const status = /** @type {import('/known.js').Status} */ (known.status);
  const rows = streamWords();
  const cells = rows.map((row) => el('tr', {}, ...row.map((words) => el('td', { textContent: words, title: words }))));
  const head = el(
    'tr',
    {},
    ...['stream', 'last seq', 'rows', 'seen'].map((words) => el('th', { textContent: words, scope: 'col' })),
  );
  const more = status.streams - rows.length;
  if (more > 0)
    cells.push(el('tr', {}, el('td', { colSpan: 4, textContent: `and ${grouped(more)} idle streams` })));
  list($('streams'), rows.length ? [head, ...cells] : [el('tr', {}, el('td', { textContent: 'none yet' }))]);
  const refused = Object.entries(status.rejected);
  const count = refused.reduce((sum, [, n]) => sum + n, 0);
  const newest = Math.max(...Object.values(status.recent_streams).map(({ last_seen: seen }) => seen));
  say(
    $('streams-plain'),
    (rows.length ? `${grouped(status.streams)} ${status.streams === 1 ? 'stream' : 'streams'}; the newest rows came ${ago(status, newest)}.` : 'No stream yet.') +
      (count ? ` ${count === 1 ? '1 message was' : `${grouped(count)} messages were`} refused.` : ' No message was refused.'),
  );
  $('rejected-save').hidden = !refused.length;
  list(
    $('rejected'),
    refused.length
      ? [
          el(
            'table',
            {},
            ...refused.map(([code, n]) =>
              el('tr', {}, el('td', { textContent: code }), el('td', { textContent: grouped(n) })),
            ),
          ),
        ]
      : [el('p', { className: 'hint', textContent: 'none' })],
  );
}
