// The pictures of the value function and of its standard deviation.

import { actionScale, actionWords, ofActions, summed } from '/actions.js';
import { fixedColumns, rangeOf, sliceWords } from '/axes.js';
import { extent, Field } from '/canvas.js';
import { againstQuery, againstTitle, againstWords, alikeInActions, difference, differs, eitherUnknown, otherWord, shownQuery } from '/compare.js';
import { Curve } from '/curve.js';
import { $, el, say } from '/dom.js';
import { HeatMap } from '/heat.js';
import { axesNow, chosen, critic, dim, inUnit, inValue, plain, valueUnit, variable } from '/known.js';
import { along, curveOf, fading, pictureOf } from '/picture.js';
import { format, grouped, round } from '/words.js';

/** Where a stream is now: its place on the axes, whether its trajectory is shown, whether it has fallen silent.
 * @typedef {{stream: string, at: number[], own: boolean, silent: boolean}} Marker */

let mapTimer = 0;
/** Called with the place of the pointer on the value's picture, and how far a pixel reaches; null without one. @type {((at: any) => void)[]} */
const pointing = [];
/** Called with a part of the axes, [[x0, x1], [y0, y1]]. */
let zooming = (/** @type {number[][]} */ _part) => {};
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

/** The same with where the other variables stand. */
export function sliceQuery() {
  const query = viewQuery();
  query.set('at', Array.from({ length: dim() }, (_, k) => (axesNow().includes(k) ? 0 : (chosen.at[k] ?? 0))).join());
  return query;
}

/** Value functions of the critic that is shown. */
export const heads = () => (drawn?.named != null ? 1 : (drawn?.heads ?? 1));
/** Whether there is no picture of this critic yet. */
export const blank = () => drawn?.critic !== critic()?.name;

/** Forget the picture: it is of another critic. */
export function forget() {
  clearTimeout(mapTimer);
  drawn = null;
}

/** Call `heard` with each place of the pointer. @param {(at: any) => void} heard */
export const onPointing = (heard) => pointing.push(heard);
/** Call `heard` with each part of the axes that is dragged over. @param {(part: number[][]) => void} heard */
export const onZooming = (heard) => (zooming = heard);

/** Draw a trajectory over the value: lists of places; on a curve the returns that came, [place, return]. @param {number[][][]} lines
 * @param {number[][]} returns */
export function overlay(lines, returns) {
  came = returns;
  if (drawn?.rows === 1) show();
  if (!viewers.map) return;
  viewers.map.path = chosen.y !== null && $('show-path', HTMLInputElement).checked ? lines : [];
  viewers.map.draw();
}

/** The actions that are shown, and on which axes; null where there are none. @returns {?{chosen: Field, range: number[][]}} */
export const shownActions = () => (drawn?.critic === critic()?.name && drawn.chosen ? drawn : null);

/** Draw a predicted course over all maps. @param {number[][]} places */
export function foresee(places) {
  for (const each of pictures()) {
    if (!(each instanceof HeatMap)) continue;
    each.ahead = places;
    each.draw();
  }
}

/** Pictures of other modules over the same axes. @type {(HeatMap | Curve)[]} */
const joined = [];

/** Let a picture show the marks of the others as well. @param {HeatMap | Curve} picture */
export function join(picture) {
  joined.push(picture);
}

/** All pictures over the axes. */
const pictures = () => [viewers.map, viewers.curve, deviationMap, chosenMap, otherMap, differenceMap, ...joined].filter(Boolean);

/** The picture that the pointer is on. @type {any} */
let source = null;

/** Show the place of the pointer on one picture on all others. @param {any} picture @param {any} at its answer to the pointer, or null */
export function link(picture, at) {
  if (at ? at.place.join() === source?.place && source.picture === picture : source?.picture !== picture) return;
  source = at && { picture, place: at.place.join() };
  for (const each of pictures()) {
    if (each === picture || !(each instanceof HeatMap)) continue;
    each.linked = at && at.place.length === 2 ? at.place : null;
    each.draw();
  }
}

/** Mark where the streams are now. @param {Marker[]} robots */
export function markers(robots) {
  for (const each of pictures()) {
    each.robots = robots.filter(({ at }) => at.length === (each instanceof HeatMap ? 2 : 1));
    each.draw();
  }
}

/** At which places of the curve hardly anything is known; empty without a curve. @returns {boolean[]} */
export const unknownOfCurve = () => viewers.curve?.next?.unknown ?? [];

/** How much of their colours the value, what it is compared with, and their difference lose. */
export const veils = () => [viewers.map, otherMap, differenceMap].map((each) => each?.next?.fade ?? null);

/** How many maps show the pointer of another one. */
export const linkedMaps = () => pictures().filter((each) => each.linked && each.canvas.offsetHeight > 0).length;

/** The marks on the picture of the value that is shown. @returns {Marker[]} */
export const shownMarkers = () => viewers[viewer]?.robots ?? [];

/** Point a place out on all pictures. @param {?number[]} place */
export function spot(place) {
  for (const each of pictures()) {
    each.spot = place;
    each.draw();
  }
}

async function picture() {
  if (document.hidden || chosen.x === null) return;
  const used = axesNow();
  const query = sliceQuery();
  if (chosen.average) query.set('average', 'true');
  if (chosen.named !== null) {
    query.set('head', '0');
    query.set('of', `head:${chosen.named}`);
  }
  if (chosen.named === null && shownQuery() !== null) query.set('of', String(shownQuery()));
  const against = chosen.named === null ? againstQuery(query) : null;
  const [own, other] = await Promise.all([asked(query), against && asked(against)]);
  // One model may be gone, the other not have arrived yet: the old pictures stay until both have.
  if (!own || (against && !other)) return;
  drawn = {
    ...own,
    used,
    named: chosen.named,
    key: `${query} ${chosen.against}`,
    earlier: chosen.earlier !== null || chosen.then !== null,
    other: other?.value ?? null,
    otherFade: other && fading(other),
    otherChosen: other && alikeInActions() ? other.chosen : null,
  };
  show();
}

/** One picture: its head and its fields; null where the daemon gives none. @param {URLSearchParams} query */
async function asked(query) {
  const reply = await fetch(`/api/map?${query}`);
  if (reply.status === 503) {
    clearTimeout(mapTimer);
    mapTimer = setTimeout(see, 1000);
  }
  if (reply.status === 400 || (reply.status === 503 && chosen.then !== null)) say($('value-note'), (await reply.text()).trim());
  // A head may be gone.
  if (reply.status === 400 && query.get('of')?.startsWith('head:')) chosen.named = null;
  if (!reply.ok) return null;
  return pictureOf(reply);
}

const scales = new Map();

/** The ends of a colour scale: round numbers around what is known, changed only when they no longer fit. */
export function scaleOf(/** @type {string} */ name, /** @type {number[]} */ [low, high]) {
  const key = `${name} ${critic().name} ${chosen.head} ${chosen.named ?? ''}`;
  const wanted = round([low, high], 6);
  const now = scales.get(key);
  const fits = now && now[0] <= low && high <= now[1] && high - low > 0.4 * (now[1] - now[0]);
  if (!fits) scales.set(key, wanted);
  return scales.get(key);
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
  $('value-word').hidden = ofActions() || drawn.named !== null;
  $('q-word').hidden = !ofActions();
  say($('named-word'), drawn.named === null ? '' : `Head ${drawn.named}`);
  $('named-back', HTMLButtonElement).hidden = drawn.named === null;
  $('fade-choice').hidden = curve;
  /** @type {any[]} */
  const points = [];
  $('recent-choice').hidden = curve;
  // A curve always has its rug.
  if (curve || $('show-recent', HTMLInputElement).checked) points.push({ kind: 'recent', at: drawn.recent });
  if ($('show-dictionary', HTMLInputElement).checked) points.push({ kind: 'dictionary', at: drawn.dictionary });
  say($('slice'), sliceWords());
  if (curve) showCurve(points);
  else showMaps(points);
}

/** "Value of angle and speed, generation 3" */
const subject = () => `${drawn.named !== null ? `Head ${drawn.named}` : ofActions() ? 'Largest Q' : 'Value'} of ${drawn.used.map(plain).join(' and ')}, generation ${drawn.generation}`;

/** What a provisional model waits for before it says how much of its value is known. */
function waiting() {
  const { running, next_at: at } = critic().refit;
  return drawn.provisional ? [`provisional: the first refit says what is known${running ? ', and runs' : at === null ? '' : `, at row ${grouped(at)}`}`] : [];
}

/** @param {any[]} points */
function showCurve(points) {
  const { generation, range } = drawn;
  const { heights, ...curve } = curveOf(drawn, eitherUnknown(fading(drawn), drawn.otherFade));
  const { mean, deviation, unknown } = curve;
  const other = along(drawn.other, mean.length);
  heights.push(...other);
  const shown = $('show-path', HTMLInputElement).checked && drawn.named === null ? came.filter(([v]) => range[0][0] <= v && v <= range[0][1]) : [];
  heights.push(...shown.map(([, v]) => v));
  // The same for every slice, so that a slider does not move the range.
  const scale = scaleOf(`curve ${drawn.used} ${chosen.against}`, [Math.min(...heights), Math.max(...heights)]);
  const apart = other.length ? new Field(mean.length, 1, mean.map((v, k) => v - other[k])) : null;
  const words = [summed(), ...(deviation.length ? ['with one and two standard deviations'] : []), ...waiting()];
  if (drawn.earlier) words.unshift(`generation ${generation}, not the present one`);
  if (shown.length) words.push('dots: returns that came');
  if (apart) words.push(`dashed: ${againstWords()}; they differ ${differs(apart, drawn)}`);
  say($('value-note'), words.join('; '));
  $('map-legend').hidden = !unknown.some(Boolean);
  picked('curve').show({
    ...curve,
    scale,
    other,
    came: shown,
    name: variable(drawn.used[0]),
    height: valueUnit() ? `value [${valueUnit()}]` : 'value',
    points,
    key: drawn.key,
    generation,
  });
  $('map-value').setAttribute('aria-label', `${subject()}: from ${format(Math.min(...mean))} to ${format(Math.max(...mean))}`);
}

/** @param {any[]} points */
function showMaps(points) {
  const { generation, range } = drawn;
  const notes = drawn.other ? [`of generation ${generation}`] : [...(drawn.earlier ? [`of generation ${generation}, not the present one`] : []), summed(), ...waiting()];
  say($('value-note'), notes.join('; '));
  const fade = fading(drawn);
  const veils = $('fade', HTMLInputElement).checked && !drawn.provisional;
  for (const legend of document.querySelectorAll('.maps .legend')) /** @type {HTMLElement} */ (legend).hidden = !veils;
  const ends = extent(drawn.value, fade);
  const others = drawn.other ? extent(drawn.other, drawn.otherFade) : ends;
  // Both maps have one scale, and its colour bar is drawn once.
  const scale = scaleOf(`value ${chosen.against}`, [Math.min(ends[0], others[0]), Math.max(ends[1], others[1])]);
  const common = { range, names: drawn.used.map(variable), unit: valueUnit(), key: drawn.key, generation, points };
  const veiled = (/** @type {?Field} */ by) => ({ ...common, fade: $('fade', HTMLInputElement).checked ? by : null });
  const faded = veiled(fade);
  picked('map').show({ ...faded, field: drawn.value, scale, bar: !drawn.other });
  $('map-value').setAttribute('aria-label', `${subject()}: from ${format(scale[0])} to ${format(scale[1])}`);
  if (drawn.other) {
    showDifference(veiled, scale, fade);
    return;
  }
  if (drawn.chosen) showChosen(faded);
  if (!drawn.deviation) return;
  const [low, high] = extent(drawn.deviation, null);
  // Relative to the range of the value, so that a small deviation looks small.
  const most = scaleOf('deviation', [0, Math.max(high, 0.25 * (scale[1] - scale[0]))]);
  deviationMap.show({ ...common, field: drawn.deviation, scale: [0, most[1]], fade: null });
  say($('deviation-note'), drawn.named !== null ? 'of the head, not of its returns' : ofActions() ? 'of Q of the chosen action' : drawn.averaged ? 'of the value at a typical state there' : 'of the value, not of returns');
  $('map-deviation').setAttribute('aria-label', `Standard deviation, from ${format(low)} to ${format(high)}`);
}

/** The action that has the largest Q. */
function showChosen(/** @type {any} */ faded) {
  const { names } = critic().actions;
  say($('chosen-note'), `${names.length ? '' : `${plain(dim())} of `}the one with the largest Q`);
  // Nothing eases: between two actions there is none.
  const key = `${drawn.key} ${drawn.generation} ${drawn.revision}`;
  chosenMap.show({ ...faded, unit: '', field: drawn.chosen, ...actionScale(), key });
  const found = new Set(drawn.chosen.values);
  const words = names.length ? [...found].sort().map((a) => actionWords(a, format)).join(', ') : `${found.size} values`;
  $('map-chosen').setAttribute('aria-label', `Chosen action: ${words}`);
}

/** The compared map, and the difference about zero: hatched where either model does not know. @param {(by: ?Field) => any} veiled @param {number[]} scale @param {?Field} fade */
function showDifference(veiled, scale, fade) {
  say($('other-title'), againstTitle());
  otherMap.show({ ...veiled(drawn.otherFade), field: drawn.other, scale });
  const either = eitherUnknown(fade, drawn.otherFade);
  $('map-other').setAttribute('aria-label', `${againstTitle()}: from ${format(scale[0])} to ${format(scale[1])}`);
  const { columns, rows } = drawn.value;
  const field = new Field(columns, rows, difference(drawn.value, drawn.other));
  const [low, high] = extent(field, either);
  const [, end] = scaleOf(`difference ${chosen.against}`, [0, Math.max(Math.abs(low), Math.abs(high), 1e-9)]);
  differenceMap.show({ ...veiled(either), field, scale: [-end, end] });
  say($('difference-note'), differs(field, drawn));
  $('map-difference').setAttribute(
    'aria-label',
    `Difference to ${againstWords()}: from ${format(low)} to ${format(high)}, zero in the middle`,
  );
}

/**
 * "angle 0.3, speed −2: value 4.1 ± 0.2 (1 std) · 90 % of returns 1.2 to 7 · 93 % known"
 * @param {any} output
 * @param {import('./types').At} at
 * @param {(at: import('./types').At) => string} words
 */
export function readout(output, at, words, more = (/** @type {any} */ _at) => /** @type {string[]} */ ([])) {
  if (!at) {
    output.replaceChildren();
    return;
  }
  const place = drawn.used.map((/** @type {number} */ k, /** @type {number} */ j) => `${plain(k)} ${inUnit(k, format(at.place[j], 3))}`).join(', ');
  const rest = more(at).map((each) => ` · ${each}`);
  output.replaceChildren(`${place}: `, el('b', { textContent: words(at) }), ...rest);
}

/** The numbers of a picture by cell, the value's unless another is given; null before there are any. */
export function valueColumns(of = drawn) {
  if (!of) return null;
  const { columns, rows, values } = of.value;
  const cells = Array.from(values, (_, k) => [((k % columns) + 0.5) / columns, (Math.floor(k / columns) + 0.5) / rows]);
  /** @type {Record<string, any>} */
  const out = {};
  axesNow().map(Number).forEach((axis, j) => {
    const [low, high] = of.range[j];
    out[variable(axis)] = cells.map((cell) => low + (high - low) * cell[j]);
  });
  Object.assign(out, fixedColumns(cells.length), { value: values });
  const read = (/** @type {Field} */ field) => cells.map(([across, up]) => field.at(across, up));
  if (of.deviation) out.deviation = read(of.deviation);
  if (of.chosen) out.action = of.chosen.values;
  if (of.other) Object.assign(out, { compared: read(of.other), difference: difference(of.value, of.other) });
  if (of.otherChosen) out.compared_action = cells.map(([across, up]) => of.otherChosen.cell(across, up));
  return out;
}

const withDeviation = (/** @type {import('./types').At} */ at) => {
  const s = at.deviation ?? drawn.deviation?.at(at.across, at.up);
  const word = ofActions() ? 'Q' : drawn.named !== null ? drawn.named : 'value';
  // Along the trajectory it is two of them, as in its band: both say which.
  return `${word} ${s === undefined ? inValue(format(at.value)) : `${inValue(`${format(at.value)} ± ${format(s, 3)}`)} (1 std)`}`;
};

const NINETY = 1.644854;

/** Further facts about the place: where returns will lie, how much of V is known, whether it extrapolates. */
function certainty(/** @type {import('./types').At} */ { value, across, up }) {
  const { deviation, returns, far, prior_deviation: prior, provisional } = drawn;
  /** @type {string[]} */
  const words = [];
  if (drawn.other) {
    const other = drawn.other.at(across, up);
    words.push(`${againstWords()} ${inValue(format(other))}`, `difference ${inValue(format(value - other, 3))}`);
  }
  if (drawn.chosen) words.push(`action ${actionWords(drawn.chosen.cell(across, up), format)}`);
  if (drawn.otherChosen) words.push(`${againstWords()}: ${actionWords(drawn.otherChosen.cell(across, up), format)}`);
  // Before a refit has selected the model, its deviations are the prior's and say nothing about places.
  if (!deviation || provisional) return words;
  if (returns) {
    const reach = NINETY * returns.at(across, up);
    words.push(`90 % of returns ${format(value - reach, 3)} to ${inValue(format(value + reach, 3))}`);
  }
  const known_ = Math.max(0, 1 - (deviation.at(across, up) / prior) ** 2);
  words.push(`${format(100 * known_, 3)} % known`);
  if (far?.cell(across, up)) words.push('extrapolated');
  return words;
}

/** One canvas shows a map or a curve: whichever is not shown leaves it alone. @type {Record<string, any>} */
const viewers = {};
let viewer = 'map';

function picked(/** @type {string} */ which) {
  viewer = which;
  const reader = (/** @type {string} */ of) => (/** @type {import('./types').At} */ at) => {
    if (viewer !== of) return;
    readout($('map-value-out'), at, withDeviation, certainty);
    link(viewers[of], at);
    for (const heard of pointing) heard(at);
  };
  viewers.map ??= new HeatMap($('map-value'), 'value', reader('map'), (part) => zooming(part));
  viewers.curve ??= new Curve($('map-value'), reader('curve'));
  for (const [name, each] of Object.entries(viewers)) each.asleep = name !== which;
  return viewers[which];
}

const deviationMap = new HeatMap($('map-deviation'), 'deviation', (at) => {
  link(deviationMap, at);
  readout($('map-deviation-out'), at, (/** @type {import('./types').At} */ { value }) => `standard deviation ${inValue(format(value))}`);
});
const chosenMap = new HeatMap($('map-chosen'), 'value', (at) => {
  link(chosenMap, at);
  readout($('map-chosen-out'), at, (/** @type {import('./types').At} */ { value }) => `action ${actionWords(value, format)}`);
});
const otherMap = new HeatMap($('map-other'), 'value', (at) => {
  link(otherMap, at);
  readout($('map-other-out'), at, (/** @type {import('./types').At} */ { value }) => `${otherWord()} ${inValue(format(value))}`);
});
const differenceMap = new HeatMap($('map-difference'), 'signed', (at) => {
  link(differenceMap, at);
  readout($('map-difference-out'), at, (/** @type {import('./types').At} */ { value }) => `${inValue(format(Math.abs(value), 3))} ${value < 0 ? 'lower' : 'higher'} than ${againstWords()}`);
});
