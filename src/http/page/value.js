// The pictures of the value function and of its standard deviation.

import { actionScale, actionWords, ofActions } from '/actions.js';
import { rangeOf, sliceWords } from '/axes.js';
import { Field } from '/canvas.js';
import { againstQuery, againstWords, difference, sizes } from '/compare.js';
import { Curve } from '/curve.js';
import { $, el, say } from '/dom.js';
import { HeatMap } from '/heat.js';
import { axesNow, chosen, critic, dim, inUnit, plain, variable } from '/known.js';
import { format, round } from '/words.js';

let mapTimer = 0;
/** Called with the place of the pointer on the value's picture, and how far a pixel reaches; null without one. */
let pointing = (/** @type {any} */ _at) => {};
/** Places on a curve, and the returns that came there. @type {number[][]} */
let came = [];
let fetching = false;
let again = false;
/** The last picture: its head and fields. @type {any} */
let drawn = null;

/** Have the picture that is meant now drawn, one at a time. */
export function see() {
  if (fetching) {
    again = true;
    return;
  }
  fetching = true;
  picture()
    .catch(() => null)
    .finally(() => {
      fetching = false;
      if (again) {
        again = false;
        see();
      }
    });
}

/** The axes with their ranges, as the daemon reads them. */
export function viewQuery() {
  const query = new URLSearchParams({ critic: critic().name, head: String(chosen.head), x: String(chosen.x) });
  if (chosen.y !== null) query.set('y', String(chosen.y));
  query.set('range', axesNow().flatMap(rangeOf).join());
  return query;
}

/** Value functions of the critic that is shown. */
export const heads = () => drawn?.heads ?? 1;
/** Whether there is no picture of this critic yet. */
export const blank = () => drawn?.critic !== critic()?.name;

/** Forget the picture: it is of another critic. */
export function forget() {
  clearTimeout(mapTimer);
  drawn = null;
}

/** Call `heard` with each place of the pointer. @param {(at: any) => void} heard */
export function onPointing(heard) {
  pointing = heard;
}

/** Draw a trajectory over the value: lists of places; on a curve the returns that came, [place, return]. @param {number[][][]} lines
 * @param {number[][]} returns */
export function overlay(lines, returns) {
  came = returns;
  if (drawn?.rows === 1) show();
  if (!viewers.map) return;
  viewers.map.path = chosen.y !== null && $('show-path').checked ? lines : [];
  viewers.map.draw();
}

/** Point a place out on all pictures. @param {?number[]} place */
export function spot(place) {
  for (const each of [viewers.map, viewers.curve, deviationMap, chosenMap, otherMap, differenceMap]) {
    if (!each) continue;
    each.spot = place;
    each.draw();
  }
}

async function picture() {
  if (document.hidden || chosen.x === null) return;
  const used = axesNow();
  const query = viewQuery();
  query.set('at', Array.from({ length: dim() }, (_, k) => (used.includes(k) ? 0 : (chosen.at[k] ?? 0))).join());
  if (chosen.average) query.set('average', 'true');
  const against = againstQuery(query);
  const [own, other] = await Promise.all([asked(query), against && asked(against)]);
  // One model may be gone, the other not have arrived yet: the old pictures stay until both have.
  if (!own || (against && !other)) return;
  drawn = { ...own, used, key: `${query} ${chosen.against}`, other: other?.value ?? null };
  show();
}

/** One picture: its head and its fields; null where the daemon gives none. @param {URLSearchParams} query */
async function asked(query) {
  const reply = await fetch(`/api/map?${query}`);
  if (reply.status === 503) {
    clearTimeout(mapTimer);
    mapTimer = setTimeout(see, 1000);
  }
  if (reply.status === 400) say($('value-note'), (await reply.text()).trim());
  if (!reply.ok) return null;
  const buffer = await reply.arrayBuffer();
  const length = new DataView(buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const cells = head.columns * head.rows;
  const coarse = head.deviation_columns * head.deviation_rows;
  const numbers = new Float32Array(buffer, 4 + length);
  const deviations = (given, from) =>
    given ? new Field(head.deviation_columns, head.deviation_rows, numbers.subarray(from, from + coarse)) : null;
  return {
    ...head,
    value: new Field(head.columns, head.rows, numbers.subarray(0, cells)),
    deviation: deviations(coarse > 0, cells),
    returns: deviations(head.return_deviation, cells + coarse),
    chosen: head.chosen ? new Field(head.columns, head.rows, numbers.subarray(numbers.length - cells)) : null,
  };
}

const scales = new Map();

/** The ends of a colour scale: round numbers around what is known, changed only when they no longer fit. */
export function scaleOf(name, [low, high]) {
  const key = `${name} ${critic().name} ${chosen.head}`;
  const wanted = round([low, high], 6);
  const now = scales.get(key);
  const fits = now && now[0] <= low && high <= now[1] && high - low > 0.4 * (now[1] - now[0]);
  if (!fits) scales.set(key, wanted);
  return scales.get(key);
}

/** The least and greatest value where something is known; anywhere, if that is hardly anywhere. */
function extent(field, fade, most = 0.6) {
  let [low, high, count] = [Infinity, -Infinity, 0];
  const { columns, rows, values } = field;
  for (let k = 0; k < values.length; k += 1) {
    const share = fade ? fade.at(((k % columns) + 0.5) / columns, (Math.floor(k / columns) + 0.5) / rows) : 0;
    if (share > most) continue;
    count += 1;
    low = Math.min(low, values[k]);
    high = Math.max(high, values[k]);
  }
  return fade && count < 0.02 * values.length ? extent(field, null) : [low, high];
}

/** How much of its colour each place loses: nothing where the deviation is small, all where it is that of the prior. */
function fading({ deviation, prior_deviation: prior }) {
  if (!deviation) return null;
  const share = deviation.values.map((s) => Math.min(1, Math.max(0, (s / prior - 0.08) / 0.85)));
  return new Field(deviation.columns, deviation.rows, share);
}

/** Draw the pictures that have arrived. */
export function show() {
  if (!drawn || drawn.critic !== critic()?.name) return;
  const curve = drawn.rows === 1;
  $('maps').classList.toggle('single', curve);
  $('maps').classList.toggle('compared', Boolean(drawn.other) && !curve);
  $('deviation-card').hidden = curve || !drawn.deviation || drawn.other;
  $('chosen-card').hidden = curve || !drawn.chosen || drawn.other;
  for (const id of ['other-card', 'difference-card']) $(id).hidden = curve || !drawn.other;
  $('value-word').hidden = ofActions();
  $('q-word').hidden = !ofActions();
  $('fade-choice').hidden = curve;
  /** @type {any[]} */
  const points = [];
  if ($('show-recent').checked) points.push({ kind: 'recent', at: drawn.recent });
  if ($('show-dictionary').checked) points.push({ kind: 'dictionary', at: drawn.dictionary });
  say($('slice'), sliceWords());
  if (curve) showCurve(points);
  else showMaps(points);
}

/** "Value of angle and speed, generation 3" */
const subject = () => `${ofActions() ? 'Largest Q' : 'Value'} of ${drawn.used.map(plain).join(' and ')}, generation ${drawn.generation}`;

/** The size of the difference over the visited states, in words. @param {Field} field */
function differs(field) {
  const found = sizes(field, drawn.recent, drawn.range);
  return found ? `at visited places ${format(found.rms, 2)} (root mean square), at most ${format(found.most, 2)}` : '';
}

/** @param {any[]} points */
function showCurve(points) {
  const { generation, range } = drawn;
  const mean = Array.from(drawn.value.values);
  const deviation = Array.from(drawn.deviation?.values ?? []);
  // A deviation of fewer places than the value is read between them.
  const spread = deviation.length ? mean.map((_, k) => drawn.deviation.at((k + 0.5) / mean.length, 0)) : [];
  const other = drawn.other ? mean.map((_, k) => drawn.other.at((k + 0.5) / mean.length, 0)) : null;
  const heights = mean.flatMap((v, k) => [v - 2 * (spread[k] ?? 0), v + 2 * (spread[k] ?? 0), other?.[k] ?? v]);
  const shown = $('show-path').checked ? came.filter(([v]) => range[0][0] <= v && v <= range[0][1]) : [];
  heights.push(...shown.map(([, v]) => v));
  const scale = scaleOf(`curve ${drawn.key}`, [Math.min(...heights), Math.max(...heights)]);
  const apart = other && new Field(mean.length, 1, mean.map((v, k) => v - other[k]));
  const words = ['with one and two standard deviations'];
  if (shown.length) words.push('dots: returns that came');
  if (apart) words.push(`dashed: ${againstWords()}; they differ ${differs(apart)}`);
  say($('value-note'), words.join('; '));
  $('map-legend').hidden = true;
  picked('curve').show({
    range: range[0],
    scale,
    mean,
    deviation: spread,
    other: other ?? [],
    came: shown,
    name: variable(drawn.used[0]),
    points,
    key: drawn.key,
    generation,
  });
  $('map-value').setAttribute('aria-label', `${subject()}: from ${format(Math.min(...mean))} to ${format(Math.max(...mean))}`);
}

/** @param {any[]} points */
function showMaps(points) {
  const { generation, range } = drawn;
  say($('value-note'), drawn.other ? `of generation ${generation}` : ofActions() ? 'expected discounted return of the best action' : 'expected discounted return');
  $('map-legend').hidden = !$('fade').checked;
  const fade = fading(drawn);
  const ends = extent(drawn.value, fade);
  const others = drawn.other ? extent(drawn.other, fade) : ends;
  // Both maps have one scale, and its colour bar is drawn once.
  const scale = scaleOf(`value ${chosen.against}`, [Math.min(ends[0], others[0]), Math.max(ends[1], others[1])]);
  const common = { range, names: drawn.used.map(variable), key: drawn.key, generation, points };
  const faded = { ...common, fade: $('fade').checked ? fade : null };
  picked('map').show({ ...faded, field: drawn.value, scale, bar: !drawn.other });
  $('map-value').setAttribute('aria-label', `${subject()}: from ${format(scale[0])} to ${format(scale[1])}`);
  if (drawn.other) {
    showDifference(faded, scale, fade);
    return;
  }
  if (drawn.chosen) showChosen(faded);
  if (!drawn.deviation) return;
  const [low, high] = extent(drawn.deviation, null);
  // Relative to the range of the value, so that a small deviation looks small.
  const most = scaleOf('deviation', [0, Math.max(high, 0.25 * (scale[1] - scale[0]))]);
  deviationMap.show({ ...common, field: drawn.deviation, scale: [0, most[1]], fade: null });
  say($('deviation-note'), ofActions() ? 'of Q of the chosen action' : drawn.averaged ? 'of the value at a typical state there' : 'of the value, not of returns');
  $('map-deviation').setAttribute('aria-label', `Standard deviation, from ${format(low)} to ${format(high)}`);
}

/** The action that has the largest Q. */
function showChosen(faded) {
  const { names } = critic().actions;
  say($('chosen-note'), names.length ? 'the one with the largest Q' : 'first coordinate of the one with the largest Q');
  // Nothing eases: between two actions there is none.
  const key = `${drawn.key} ${drawn.generation} ${drawn.revision}`;
  chosenMap.show({ ...faded, field: drawn.chosen, ...actionScale(), key });
  const found = new Set(drawn.chosen.values);
  const words = names.length ? [...found].sort().map((a) => actionWords(a, format)).join(', ') : `${found.size} values`;
  $('map-chosen').setAttribute('aria-label', `Chosen action: ${words}`);
}

/** The compared map, and the difference about zero. */
function showDifference(faded, scale, fade) {
  const words = againstWords();
  say($('other-title'), `${words[0].toUpperCase()}${words.slice(1)}`);
  otherMap.show({ ...faded, field: drawn.other, scale });
  $('map-other').setAttribute('aria-label', `${againstWords()}: from ${format(scale[0])} to ${format(scale[1])}`);
  const { columns, rows } = drawn.value;
  const field = new Field(columns, rows, difference(drawn.value, drawn.other));
  const [low, high] = extent(field, fade);
  const [, end] = scaleOf(`difference ${chosen.against}`, [0, Math.max(Math.abs(low), Math.abs(high), 1e-9)]);
  differenceMap.show({ ...faded, field, scale: [-end, end] });
  say($('difference-note'), differs(field));
  $('map-difference').setAttribute(
    'aria-label',
    `Difference to ${againstWords()}: from ${format(low)} to ${format(high)}, zero in the middle`,
  );
}

/** "angle 0.3, speed −2: value 4.1 ± 0.2 · 90 % of returns 1.2 to 7 · 93 % known" */
export function readout(output, at, words, more = (/** @type {any} */ _at) => /** @type {string[]} */ ([])) {
  if (!at) {
    output.replaceChildren();
    return;
  }
  const place = drawn.used.map((k, j) => `${plain(k)} ${inUnit(k, format(at.place[j], 3))}`).join(', ');
  const rest = more(at).map((each) => ` · ${each}`);
  output.replaceChildren(`${place}: `, el('b', { textContent: words(at) }), ...rest);
}

/** The numbers of the pictures by cell; null before there are any. */
export function valueColumns() {
  if (!drawn) return null;
  const { columns, rows, values } = drawn.value;
  const cells = Array.from(values, (_, k) => [((k % columns) + 0.5) / columns, (Math.floor(k / columns) + 0.5) / rows]);
  /** @type {Record<string, any>} */
  const out = {};
  drawn.used.forEach((axis, j) => {
    const [low, high] = drawn.range[j];
    out[variable(axis)] = cells.map((cell) => low + (high - low) * cell[j]);
  });
  out.value = values;
  const read = (field) => cells.map(([across, up]) => field.at(across, up));
  if (drawn.deviation) out.deviation = read(drawn.deviation);
  if (drawn.chosen) out.action = drawn.chosen.values;
  if (drawn.other) Object.assign(out, { compared: read(drawn.other), difference: difference(drawn.value, drawn.other) });
  return out;
}

const withDeviation = (at) => {
  const s = at.deviation ?? drawn.deviation?.at(at.across, at.up);
  const word = ofActions() ? 'Q' : 'value';
  return s === undefined ? `${word} ${format(at.value)}` : `${word} ${format(at.value)} ± ${format(s, 3)}`;
};

const NINETY = 1.644854;

/** Further facts about the place: where returns will lie, how much of V is known, whether it extrapolates. */
function certainty({ value, across, up }) {
  const { deviation, returns, extrapolates, prior_variance: prior } = drawn;
  /** @type {string[]} */
  const words = [];
  if (drawn.other) {
    const other = drawn.other.at(across, up);
    words.push(`${againstWords()} ${format(other)}`, `difference ${format(value - other, 3)}`);
  }
  if (drawn.chosen) words.push(`action ${actionWords(drawn.chosen.cell(across, up), format)}`);
  if (!deviation) return words;
  if (returns) {
    const reach = NINETY * returns.at(across, up);
    words.push(`90 % of returns ${format(value - reach, 3)} to ${format(value + reach, 3)}`);
  }
  const known_ = Math.max(0, 1 - deviation.at(across, up) ** 2 / prior);
  words.push(`${format(100 * known_, 3)} % known`);
  const cell = (share, count) => Math.min(Math.floor(share * count), count - 1);
  const at = cell(up, deviation.rows) * deviation.columns + cell(across, deviation.columns);
  if (extrapolates[at] === '1') words.push('extrapolated');
  return words;
}

/** One canvas shows a map or a curve: whichever is not shown leaves it alone. @type {Record<string, any>} */
const viewers = {};
let viewer = 'map';

function picked(which) {
  viewer = which;
  const reader = (of) => (at) => {
    if (viewer !== of) return;
    readout($('map-value-out'), at, withDeviation, certainty);
    pointing(at);
  };
  viewers.map ??= new HeatMap($('map-value'), 'value', reader('map'));
  viewers.curve ??= new Curve($('map-value'), reader('curve'));
  for (const [name, each] of Object.entries(viewers)) each.asleep = name !== which;
  return viewers[which];
}

const deviationMap = new HeatMap($('map-deviation'), 'deviation', (at) => {
  readout($('map-deviation-out'), at, ({ value }) => `standard deviation ${format(value)}`);
});
const chosenMap = new HeatMap($('map-chosen'), 'value', (at) => {
  readout($('map-chosen-out'), at, ({ value }) => `action ${actionWords(value, format)}`);
});
const otherMap = new HeatMap($('map-other'), 'value', (at) => {
  readout($('map-other-out'), at, ({ value }) => `value ${format(value)}`);
});
const differenceMap = new HeatMap($('map-difference'), 'signed', (at) => {
  readout($('map-difference-out'), at, ({ value }) => `${format(Math.abs(value), 3)} ${value < 0 ? 'lower' : 'higher'} than ${againstWords()}`);
});
