// The pictures of the value function and of its standard deviation.

import { rangeOf, sliceWords } from '/axes.js';
import { Field } from '/canvas.js';
import { Curve } from '/curve.js';
import { $, el, say } from '/dom.js';
import { HeatMap } from '/heat.js';
import { axesNow, chosen, critic, dim, variable } from '/known.js';
import { format, round } from '/words.js';

let mapTimer = 0;
/** Called with the place of the pointer on the value's picture, and how far a pixel reaches; null without one. */
let pointing = (/** @type {any} */ _told) => {};
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

/** Call `heard` with each place of the pointer. @param {(told: any) => void} heard */
export function onPointing(heard) {
  pointing = heard;
}

/** Draw a trajectory over the value: lists of places. @param {number[][][]} lines */
export function overlay(lines) {
  if (!viewers.map) return;
  viewers.map.path = chosen.y !== null && $('show-path').checked ? lines : [];
  viewers.map.draw();
}

/** Point a place out on all pictures. @param {?number[]} place */
export function spot(place) {
  for (const each of [viewers.map, viewers.curve, deviationMap]) {
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
  const reply = await fetch(`/api/map?${query}`);
  if (reply.status === 503) {
    clearTimeout(mapTimer);
    mapTimer = setTimeout(see, 1000);
    return;
  }
  if (!reply.ok) return;
  const buffer = await reply.arrayBuffer();
  const length = new DataView(buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const cells = head.columns * head.rows;
  const coarse = head.deviation_columns * head.deviation_rows;
  const numbers = new Float32Array(buffer, 4 + length);
  const deviations = (given, from) =>
    given ? new Field(head.deviation_columns, head.deviation_rows, numbers.subarray(from, from + coarse)) : null;
  drawn = {
    ...head,
    used,
    key: query.toString(),
    value: new Field(head.columns, head.rows, numbers.subarray(0, cells)),
    deviation: deviations(coarse > 0, cells),
    returns: deviations(head.return_deviation, cells + coarse),
  };
  show();
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

export function show() {
  if (!drawn || drawn.critic !== critic()?.name) return;
  const curve = drawn.rows === 1;
  $('maps').classList.toggle('single', curve);
  $('deviation-card').hidden = curve || !drawn.deviation;
  $('fade-choice').hidden = curve;
  /** @type {any[]} */
  const points = [];
  if ($('show-recent').checked) points.push({ kind: 'recent', at: drawn.recent });
  if ($('show-dictionary').checked) points.push({ kind: 'dictionary', at: drawn.dictionary });
  const names = drawn.used.map(variable);
  say($('slice'), sliceWords());
  const { generation, range } = drawn;
  const subject = `Value of ${names.join(' and ')}, generation ${generation}`;
  if (curve) {
    const mean = Array.from(drawn.value.values);
    const deviation = Array.from(drawn.deviation?.values ?? []);
    const heights = mean.flatMap((v, k) => [v - 2 * (deviation[k] ?? 0), v + 2 * (deviation[k] ?? 0)]);
    const scale = scaleOf(`curve ${drawn.key}`, [Math.min(...heights), Math.max(...heights)]);
    say($('value-note'), 'with one and two standard deviations');
    $('map-legend').hidden = true;
    $('map-value').hidden = false;
    picked('curve').show({
      range: range[0],
      scale,
      mean,
      deviation,
      name: names[0],
      points,
      key: drawn.key,
      generation,
    });
    $('map-value').setAttribute(
      'aria-label',
      `${subject}: from ${format(Math.min(...mean))} to ${format(Math.max(...mean))}`,
    );
    return;
  }
  say($('value-note'), 'expected discounted return');
  $('map-legend').hidden = !$('fade').checked;
  const fade = fading(drawn);
  const scale = scaleOf('value', extent(drawn.value, fade));
  const common = { range, names, key: drawn.key, generation };
  picked('map').show({ ...common, field: drawn.value, scale, fade: $('fade').checked ? fade : null, points });
  $('map-value').setAttribute('aria-label', `${subject}: from ${format(scale[0])} to ${format(scale[1])}`);
  if (drawn.deviation) {
    const [low, high] = extent(drawn.deviation, null);
    // Against the range of the value: a small uncertainty does not glow.
    const most = scaleOf('deviation', [0, Math.max(high, 0.25 * (scale[1] - scale[0]))]);
    deviationMap.show({ ...common, field: drawn.deviation, scale: [0, most[1]], fade: null, points });
    $('map-deviation').setAttribute('aria-label', `Standard deviation, from ${format(low)} to ${format(high)}`);
  }
}

/** "angle 0.3, speed −2: value 4.1 ± 0.2 · 90 % of returns 1.2 to 7 · 93 % known" */
export function readout(output, told, words, more = (/** @type {any} */ _told) => /** @type {string[]} */ ([])) {
  if (!told) {
    output.replaceChildren();
    return;
  }
  const place = drawn.used.map((k, j) => `${variable(k)} ${format(told.place[j], 3)}`).join(', ');
  const rest = more(told).map((each) => ` · ${each}`);
  output.replaceChildren(`${place}: `, el('b', { textContent: words(told) }), ...rest);
}

const withDeviation = (told) => {
  const s = told.deviation ?? drawn.deviation?.at(told.across, told.up);
  return s === undefined ? `value ${format(told.value)}` : `value ${format(told.value)} ± ${format(s, 3)}`;
};

const NINETY = 1.644854;

/** What else is known of the place: where returns will lie, how much of V data have told, whether it is guessed. */
function certainty({ value, across, up }) {
  const { deviation, returns, extrapolates, prior_variance: prior } = drawn;
  if (!deviation) return [];
  /** @type {string[]} */
  const words = [];
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
  const told = (of) => (at) => {
    if (viewer !== of) return;
    readout($('map-value-out'), at, withDeviation, certainty);
    pointing(at);
  };
  viewers.map ??= new HeatMap($('map-value'), 'value', told('map'));
  viewers.curve ??= new Curve($('map-value'), told('curve'));
  for (const [name, each] of Object.entries(viewers)) each.asleep = name !== which;
  return viewers[which];
}

const deviationMap = new HeatMap($('map-deviation'), 'deviation', (told) => {
  readout($('map-deviation-out'), told, ({ value }) => `standard deviation ${format(value)}`);
});
