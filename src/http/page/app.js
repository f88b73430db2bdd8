// The page: what the daemon tells, kept and shown. Text from outside is only ever set as text.

import {
  Curve,
  Field,
  HeatMap,
  Scatter,
  bytes,
  duration,
  format,
  grouped,
  readTheme,
  round,
  setColours,
  timeAt,
  timeline,
} from '/draw.js';

const $ = (id) => document.getElementById(id);

/** An element with properties and children; strings become text. */
function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === 'data') Object.assign(element.dataset, value);
    else if (name.startsWith('aria-') || name === 'role') element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Set text only where it has changed: screen readers and selections stay undisturbed. */
function say(element, words) {
  if (element.textContent !== words) element.textContent = words;
}

const remembered = {
  get(key) {
    try {
      return JSON.parse(localStorage.getItem(`criticd.${key}`));
    } catch {
      return null;
    }
  },
  set(key, value) {
    try {
      localStorage.setItem(`criticd.${key}`, JSON.stringify(value));
    } catch {
      /* a private window forgets */
    }
  },
};

// ---------------------------------------------------------------------------------------------- what is known

const known = { number: 0, status: null, columns: [], history: {}, marks: new Map(), states: null, calibration: [] };
const PAIRS = 400;
const MARKS = 100;
// Beyond this the history is asked for again: the daemon thins what is old.
const POINTS = 2600;

const chosen = { critic: 0, head: 0, x: null, y: null, at: {}, span: remembered.get('span') ?? 600 };
const critic = () => known.status?.critics[chosen.critic];
const series = (name) => known.history[`${critic()?.name}.${name}`] ?? [];

function begin(all) {
  Object.assign(known, { number: all.number, status: all.status, columns: all.columns, history: all.history });
  known.endpoints = all.endpoints;
  known.states = all.states;
  known.marks = new Map(all.marks.map((mark) => [mark.number, mark]));
  known.calibration = all.calibration;
  for (const [name, hex] of Object.entries(all.colours)) setColours(name, hex);
  if (known.status) choices();
}

function apply(news) {
  const first = !known.status;
  Object.assign(known, { number: news.number, status: news.status, states: news.states });
  known.columns.forEach((name, k) => known.history[name].push(news.point[k]));
  for (const mark of news.marks) known.marks.set(mark.number, mark);
  for (const number of [...known.marks.keys()].slice(0, -MARKS)) known.marks.delete(number);
  news.calibration.forEach(({ pairs, summary }, k) => {
    known.calibration[k].pairs.push(...pairs);
    known.calibration[k].pairs.splice(0, known.calibration[k].pairs.length - PAIRS);
    known.calibration[k].summary = summary;
  });
  if (first) choices();
}

let asking = false;

async function ask() {
  if (asking) return;
  asking = true;
  try {
    const reply = await fetch('/api/history');
    if (reply.ok) begin(await reply.json());
  } catch {
    /* the event stream says that the daemon is away */
  }
  asking = false;
  render();
}

function listen() {
  const events = new EventSource('/api/events');
  events.onopen = () => {
    live('live', 'live');
    ask();
  };
  events.onerror = () => {
    live('lost', 'no connection to the daemon; retrying');
    // A browser gives up after a refusal (too many pages, a daemon that starts); we do not.
    if (events.readyState === EventSource.CLOSED) setTimeout(listen, 2000);
  };
  events.onmessage = ({ data }) => {
    const news = JSON.parse(data);
    live('live', 'live');
    if (asking || news.number === known.number) return;
    const times = known.history.time ?? [];
    if (news.number !== known.number + 1 || !known.columns.length || times.length > POINTS) {
      ask();
      return;
    }
    apply(news);
    render();
    showDrift();
  };
}

/** What changes of the world lead to, in turn: the last of these says how things stand. */
const FOLLOWS = ['drift', 'forked', 'swapped', 'returned', 'dismissed', 'adopted', 'new_policy'];
/** Seconds for which a change of single streams is shown: no model follows those. */
const STREAM_DRIFT_S = 600;

/** Amber while the world has changed and the model in use is still that of before. */
function showDrift() {
  const last = marks().findLast((mark) => FOLLOWS.includes(mark.event));
  const drift = marks().findLast((mark) => mark.event === 'drift');
  if (!drift || !['drift', 'forked'].includes(last?.event)) return;
  const single = drift.streams?.length > 0;
  if (single && Date.now() / 1000 - drift.time > STREAM_DRIFT_S) return;
  live('drift', `live, but ${unlike(drift)}${single ? '' : '; a second model is learning'}`);
}

function live(state, words) {
  $('live').dataset.state = state;
  say($('live-text'), words);
}

// ---------------------------------------------------------------------------------------------- variables and axes

const dim = () => critic()?.inputs?.scale.length ?? known.status?.state_dim ?? 0;
const variable = (k) => critic()?.inputs?.names?.[k] ?? `state ${k}`;

/** Squared inverse lengthscales in normalised coordinates, directions included. */
function relevances() {
  const { kernel } = critic();
  const own = Array.isArray(kernel.relevance) ? kernel.relevance : Array(dim()).fill(kernel.relevance);
  return own.map((a, k) => a + (kernel.factors ?? []).reduce((sum, factor) => sum + factor[k] ** 2, 0));
}

/**
 * How far state variable k has to move, in its own unit, for a value to change: null for a category, which is equal or
 * different; Infinity where the kernel leaves the variable out. A period is gone round as a circle of that length.
 */
function lengthscale({ kernel, scale }, k) {
  const own = Array.isArray(kernel.relevance) ? kernel.relevance[k] : kernel.relevance;
  const relevance = own + (kernel.factors ?? []).reduce((sum, factor) => sum + factor[k] ** 2, 0);
  const kind = kernel.kinds?.[k] ?? 'real';
  if (kind === 'category') return relevance > 0 ? null : Infinity;
  const unit = kind.startsWith('periodic:') ? Number(kind.slice(9)) / (2 * Math.PI) : scale[k];
  return unit / Math.sqrt(relevance);
}

/** State variables, the most relevant first. */
function ranked() {
  const a = relevances();
  return a.map((_, k) => k).sort((i, j) => a[j] - a[i] || i - j);
}

/** What there is to choose from, when a daemon is met or the critic changes. */
function choices() {
  const { critics } = known.status;
  if (chosen.critic >= critics.length) chosen.critic = 0;
  $('critic').replaceChildren(...critics.map(({ name }, k) => el('option', { value: k, textContent: name })));
  $('critic').value = chosen.critic;
  $('critic-choice').hidden = critics.length < 2;
  Object.assign(chosen, { x: null, y: null, head: 0, at: {} });
  ranges.clear();
  clearTimeout(mapTimer);
  drawn = null;
}

/** Axes and sliders, once there is a model. */
function axes() {
  if (chosen.x !== null || !critic().kernel || !known.states?.median.length) return;
  const kept = remembered.get(`axes.${critic().name}.${dim()}`);
  const [x, y] =
    kept && kept.every((k) => k === null || k < dim())
      ? kept
      : ranked()
          .slice(0, 2)
          .sort((i, j) => i - j);
  chosen.x = x;
  chosen.y = dim() > 1 ? (y ?? null) : null;
  for (const [id, none] of [
    ['axis-x', false],
    ['axis-y', true],
  ]) {
    const options = Array.from({ length: dim() }, (_, k) => el('option', { value: k, textContent: variable(k) }));
    if (none) options.push(el('option', { value: '', textContent: 'nothing: a curve' }));
    $(id).replaceChildren(...options);
  }
  $('axis-x').parentElement.hidden = dim() < 2;
  $('swap').hidden = dim() < 2;
  $('axis-y-label').hidden = dim() < 2;
  medians();
}

function medians() {
  chosen.at = {};
  known.states.median.forEach((v, k) => {
    chosen.at[k] = v;
  });
  sliders();
}

const SLIDERS = 12;

function sliders() {
  $('axis-x').value = chosen.x;
  $('axis-y').value = chosen.y ?? '';
  $('swap').disabled = chosen.y === null;
  const others = ranked()
    .filter((k) => k !== chosen.x && k !== chosen.y)
    .slice(0, SLIDERS);
  $('others').hidden = others.length === 0;
  const summary = () =>
    say($('others-summary'), others.map((k) => `${variable(k)} ${format(chosen.at[k], 3)}`).join(', '));
  $('sliders').replaceChildren(
    ...others.map((k) => {
      const [low, high] = rangeOf(k);
      const out = el('output', { textContent: format(chosen.at[k], 3) });
      const input = el('input', { type: 'range', min: low, max: high, step: (high - low) / 200, value: chosen.at[k] });
      input.addEventListener('input', () => {
        chosen.at[k] = Number(input.value);
        say(out, format(chosen.at[k], 3));
        summary();
        see();
      });
      return el('label', {}, variable(k), out, input);
    }),
  );
  summary();
}

const ranges = new Map();

/** From where to where a variable is shown: round numbers around what was visited, which only ever widen. */
function rangeOf(k) {
  const [low, high] = [known.states.low[k], known.states.high[k]];
  const now = ranges.get(k);
  if (now && now[0] <= low && high <= now[1]) return now;
  const margin = 0.02 * (high - low);
  const wanted = [Math.min(low - margin, now?.[0] ?? Infinity), Math.max(high + margin, now?.[1] ?? -Infinity)];
  ranges.set(k, round(wanted, 30));
  return ranges.get(k);
}

// ---------------------------------------------------------------------------------------------- the value function

let mapTimer = 0;
let fetching = false;
let again = false;
/** The last picture: its head and fields. */
let drawn = null;

/** Have the picture that is meant now drawn, one at a time. */
function see() {
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

async function picture() {
  if (document.hidden || chosen.x === null) return;
  const used = [chosen.x, chosen.y].filter((k) => k !== null);
  const query = new URLSearchParams({ critic: critic().name, head: chosen.head, x: chosen.x });
  if (chosen.y !== null) query.set('y', chosen.y);
  query.set('range', used.flatMap(rangeOf).join());
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
function scaleOf(name, [low, high]) {
  const key = `${name} ${critic().name} ${chosen.head}`;
  const wanted = round([low, high], 6);
  const now = scales.get(key);
  const fits = now && now[0] <= low && high <= now[1] && high - low > 0.55 * (now[1] - now[0]);
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

function show() {
  if (!drawn || drawn.critic !== critic()?.name) return;
  const curve = drawn.rows === 1;
  $('maps').classList.toggle('single', curve);
  $('deviation-card').hidden = curve || !drawn.deviation;
  $('fade-choice').hidden = curve;
  const points = [];
  if ($('show-recent').checked) points.push({ kind: 'recent', at: drawn.recent });
  if ($('show-dictionary').checked) points.push({ kind: 'dictionary', at: drawn.dictionary });
  const names = drawn.used.map(variable);
  const { generation, range } = drawn;
  const subject = `Value of ${names.join(' and ')}, generation ${generation}`;
  if (curve) {
    const mean = Array.from(drawn.value.values);
    const deviation = Array.from(drawn.deviation?.values ?? []);
    const heights = mean.flatMap((v, k) => [v - 2 * (deviation[k] ?? 0), v + 2 * (deviation[k] ?? 0)]);
    const scale = scaleOf(`curve ${drawn.key}`, [Math.min(...heights), Math.max(...heights)]);
    say($('value-note'), 'with one and two standard deviations');
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
  const fade = fading(drawn);
  const scale = scaleOf('value', extent(drawn.value, fade));
  const common = { range, names, key: drawn.key, generation };
  picked('map').show({ ...common, field: drawn.value, scale, fade: $('fade').checked ? fade : null, points });
  $('map-value').setAttribute('aria-label', `${subject}: from ${format(scale[0])} to ${format(scale[1])}`);
  if (drawn.deviation) {
    const [low, high] = extent(drawn.deviation, null);
    const most = scaleOf('deviation', [0, Math.max(high, low + 1e-9)]);
    deviationMap.show({ ...common, field: drawn.deviation, scale: [0, most[1]], fade: null, points });
    $('map-deviation').setAttribute('aria-label', `Standard deviation, from ${format(low)} to ${format(high)}`);
  }
}

/** "angle 0.3, speed −2: value 4.1 ± 0.2 · 90 % of returns 1.2 to 7 · 93 % known" */
function readout(output, told, words, more = () => []) {
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

// One canvas shows a map or a curve: whichever is not shown leaves it alone.
const viewers = {};
let viewer = 'map';

function picked(which) {
  viewer = which;
  viewers.map ??= new HeatMap(
    $('map-value'),
    'value',
    (told) => viewer === 'map' && readout($('map-value-out'), told, withDeviation, certainty),
  );
  viewers.curve ??= new Curve(
    $('map-value'),
    (told) => viewer === 'curve' && readout($('map-value-out'), told, withDeviation, certainty),
  );
  for (const [name, each] of Object.entries(viewers)) each.asleep = name !== which;
  return viewers[which];
}

const deviationMap = new HeatMap($('map-deviation'), 'deviation', (told) => {
  readout($('map-deviation-out'), told, ({ value }) => `standard deviation ${format(value)}`);
});

// ---------------------------------------------------------------------------------------------- the cards

function facts(list, entries) {
  list.replaceChildren(
    ...entries.filter(Boolean).flatMap(([term, ...said]) => [el('dt', { textContent: term }), el('dd', {}, ...said)]),
  );
}

const small = (words) => el('small', { textContent: ` ${words}` });

/** "from 431 verified pairs; 82 % were in the 90 % interval before" */
function verified({ pairs, coverage }) {
  if (!pairs) return 'not verified yet';
  const before = typeof coverage === 'number' ? `; ${format(100 * coverage, 3)} % in the 90 % interval before the correction` : '';
  return `from ${grouped(pairs)} verified pairs${before}`;
}

function modelCard() {
  const c = critic();
  const { kernel, noise, refit, adoption_pause_ms: pause } = c;
  $('provisional').hidden = !c.provisional;
  const next = refit.running
    ? 'running now'
    : refit.next_at === null
      ? 'on request'
      : `at row ${grouped(refit.next_at)}`;
  facts($('model'), [
    [
      'generation',
      String(c.generation),
      small(`${refit.adopted} adopted, ${refit.rejected} rejected` + (refit.failed ? `, ${refit.failed} failed` : '')),
    ],
    ['next selection', next],
    ['dictionary', grouped(c.dictionary_size), small(`of at most ${grouped(c.dictionary_max)} states`)],
    ['rows in the model', grouped(c.transitions)],
    ['discount', format(c.discount), c.lambda === undefined ? null : small(`λ ${format(c.lambda, 3)}`)],
    c.returns
      ? [
          'returns',
          `sd × ${format(c.returns.factor, 3)}`,
          small(verified(c.returns)),
        ]
      : null,
    [
      'kernel',
      kernelName(kernel),
      small(
        `sd ${format(Math.sqrt(kernel.signal_variance), 3)}` +
          (kernel.bias_variance > 0 ? ` · offset ${format(Math.sqrt(kernel.bias_variance), 3)}` : ''),
      ),
    ],
    ['noise', `sd ${format(Math.sqrt(noise.variance), 3)}`, small(noise.model)],
    typeof c.log_evidence === 'number'
      ? ['log evidence', format(c.log_evidence), small('nats')]
      : typeof c.held_out_error === 'number'
        ? ['held-out error', format(c.held_out_error, 3), small('1 is that of a constant')]
        : null,
    ['log score', format(c.score_recent), small('nats per row, recent')],
    ['running chains', grouped(c.running_chains)],
    pause.count
      ? ['adoption pause', `${format(pause.p50, 2)} ms`, small(`median, ${format(pause.max, 2)} ms at most`)]
      : null,
    ['memory', bytes(c.bytes), small(`model · ${bytes(known.history.resident_bytes.at(-1) ?? NaN)} process`)],
  ]);
}

const ROWS_SHOWN = 12;

/** What was said of the model in use when it was adopted; the last selection may have been of another one. */
function adoption() {
  const { generation, refit } = critic();
  const said = marks().findLast((m) => m.event === 'adopted' && m.generation === generation);
  return said ?? (refit.last?.outcome === 'adopted' ? refit.last : null);
}

function relevanceCard() {
  const a = relevances();
  const most = Math.max(...a, 1e-300);
  const { inputs, kernel } = critic();
  const report = adoption() ?? {};
  const support = report.evidence_drop ?? [];
  // In the order of the state, so that nothing changes places; where there are many, the most relevant.
  const shown = ranked()
    .slice(0, ROWS_SHOWN)
    .sort((i, j) => i - j);
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
    say(name, variable(k));
    const length = lengthscale({ kernel, scale: inputs.scale }, k);
    const irrelevant = a[k] < 1e-6;
    const nats = typeof support[k] === 'number' ? ` · ${format(support[k], 3)} nats` : '';
    box.children[row].title = nats ? 'nats: evidence that the model would lose without this variable' : '';
    const told = length === null ? 'category' : `lengthscale ${format(length, 3)}`;
    say(numbers, irrelevant ? `irrelevant${nats}` : `${told}${nats}`);
    box.children[row].classList.toggle('off', irrelevant);
    track.firstChild.style.width = `${100 * Math.sqrt(a[k] / most)}%`;
  });
  const sentences = report.relevance_report ?? [];
  const words = [...sentences.slice(0, ROWS_SHOWN), ...(report.findings ?? [])];
  (sentences.length ? [] : (kernel.factors ?? [])).forEach((factor, j) => {
    const parts = factor
      .map((f, k) => [f, k])
      .sort((x, y) => Math.abs(y[0]) - Math.abs(x[0]))
      .slice(0, 4);
    words.push(`direction ${j + 1}: ${parts.map(([f, k]) => `${format(f, 2)} ${variable(k)}`).join(', ')}`);
  });
  if (ranked().length > shown.length)
    words.push(`${ranked().length - shown.length} less relevant variables are not shown`);
  list(
    $('findings'),
    words.map((each) => el('li', { textContent: each })),
  );
}

/** Replace the children only if their text differs. */
function list(parent, children) {
  const text = children.map((child) => child.textContent).join('\n');
  if (parent.dataset.text === text) return;
  parent.dataset.text = text;
  parent.replaceChildren(...children);
}

const scatter = new Scatter($('calibration'), (pair) => {
  $('calibration-out').replaceChildren(
    ...(pair
      ? [
          `predicted ${format(pair[0])} ± ${format(NINETY * pair[2], 3)} (90 %): `,
          el('b', { textContent: `realised ${format(pair[1])}` }),
        ]
      : []),
  );
});

function calibrationCard() {
  const { pairs, summary } = known.calibration[chosen.critic] ?? { pairs: [] };
  if (!pairs.length) {
    say(
      $('calibration-text'),
      'The predicted value of a state, against the return that followed. A point appears when an episode ' +
        'terminates, or when later rewards no longer matter. Returns that a cut ends do not count.',
    );
    $('calibration').hidden = true;
    return;
  }
  $('calibration').hidden = false;
  say(
    $('calibration-text'),
    `${format(100 * summary.within_90, 3)} % of the last ${summary.count} returns lie within the ` +
      `90 % interval · correlation ${format(summary.correlation, 3)} · bias ${format(summary.bias, 2)} · RMS error ` +
      format(summary.rms, 3),
  );
  const all = pairs.flatMap(([p, r]) => [p, r]);
  scatter.show({ pairs, range: scaleOf('calibration', [Math.min(...all), Math.max(...all)]) });
  $('calibration').setAttribute('aria-label', $('calibration-text').textContent);
}

function vitals() {
  const s = known.status;
  const list_ = [
    ['rows', grouped(s.offset)],
    ['rows/s', grouped(s.rows_per_second)],
    [s.streams === 1 ? 'stream' : 'streams', grouped(s.streams)],
    ['up', duration(s.uptime_s)],
  ];
  const refused = Object.values(s.rejected).reduce((sum, n) => sum + n, 0);
  if (refused) list_.push(['refused', grouped(refused)]);
  list(
    $('vitals'),
    list_.map(([term, value]) => el('div', {}, el('dt', { textContent: term }), el('dd', { textContent: value }))),
  );
  say($('version'), `criticd ${s.version}`);
}

function streams() {
  const rows = Object.entries(known.status.recent_streams).sort(([a], [b]) => (a < b ? -1 : 1));
  const ago = (seen) => {
    const seconds = Math.max(0, known.status.time - seen);
    return seconds < 1.5 ? 'now' : `${duration(seconds)} ago`;
  };
  const cells = rows.map(([name, s]) =>
    el(
      'tr',
      {},
      ...[name, grouped(s.next_seq - 1), grouped(s.rows), ago(s.last_seen)].map((words) =>
        el('td', { textContent: words, title: words }),
      ),
    ),
  );
  const head = el(
    'tr',
    {},
    ...['stream', 'last seq', 'rows', 'seen'].map((words) => el('th', { textContent: words, scope: 'col' })),
  );
  const more = known.status.streams - rows.length;
  if (more > 0)
    cells.push(el('tr', {}, el('td', { colSpan: 4, textContent: `and ${grouped(more)} idle streams` })));
  list($('streams'), rows.length ? [head, ...cells] : [el('tr', {}, el('td', { textContent: 'none yet' }))]);
  const refused = Object.entries(known.status.rejected);
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

// ---------------------------------------------------------------------------------------------- model selection

const KINDS = {
  adopted: 'adopted',
  swapped: 'adopted',
  returned: 'adopted',
  refit_rejected: 'rejected',
  drift: 'drift',
  new_policy: 'drift',
};
const kindOf = (mark) => KINDS[mark.event] ?? 'other';
const SHOWN_EVENTS = [
  'adopted',
  'refit_rejected',
  'drift',
  'forked',
  'swapped',
  'returned',
  'dismissed',
  'new_policy',
  'dictionary_full',
  'critic_failed',
  'checkpoint',
];

/** Marks of the chosen critic, oldest first. */
function marks() {
  const name = critic()?.name;
  return [...known.marks.values()].filter((m) => SHOWN_EVENTS.includes(m.event) && (m.critic ?? name) === name);
}

const TRIGGERS = {
  rows: 'enough new rows',
  score_drop: 'predictions got worse',
  dictionary_full: 'the dictionary was full',
  requested: 'asked for',
};

function title(mark) {
  if (mark.event === 'adopted') return `Generation ${mark.generation} adopted`;
  if (mark.event === 'refit_rejected') return `Generation ${mark.generation} stays`;
  if (mark.event === 'drift') return 'The world has changed';
  if (mark.event === 'forked') return 'A second model learns the rows since';
  if (mark.event === 'swapped') return `Generation ${mark.generation}: the second model has taken over`;
  if (mark.event === 'returned') return `Generation ${mark.generation}: a kept model has taken over again`;
  if (mark.event === 'dismissed') return 'The second model predicts no better';
  if (mark.event === 'new_policy') return `Another policy acts${mark.policy ? `: ${mark.policy}` : ''}`;
  if (mark.event === 'dictionary_full') return `The dictionary is full with ${mark.size} states`;
  return mark.event.replaceAll('_', ' ');
}

const UNLIKE = {
  higher: 'rewards and values are higher than predicted',
  lower: 'rewards and values are lower than predicted',
  wider: 'prediction errors scatter more',
};

/** What an alarm says: what differs, since when, in which streams, and which state variables moved. */
function unlike({ statistic, since, streams, variables }) {
  const where = streams?.length ? ` in ${streams.join(', ')}` : '';
  const moved = variables?.length ? `; moved: ${variables.map((v) => v.name).join(', ')}` : '';
  return `${UNLIKE[statistic] ?? statistic}${where}, probably since row ${grouped(since)}${moved}`;
}

/** "ard, matern52": form and profile. */
const kernelName = ({ kind, profile }) => `${kind}, ${profile ?? 'gaussian'}`;

/** What an adoption changed in the kernel: "angle 0.42 → 0.38, noise sd 0.31 → 0.28". */
function changes({ kernel_before: before, kernel_after: after }) {
  if (!before || !after) return null;
  const pairs = after.scale
    .map((_, k) => [`lengthscale of ${variable(k)}`, lengthscale(before, k), lengthscale(after, k)])
    .filter(([, from, to]) => from !== null && to !== null);
  pairs.push(['noise sd', Math.sqrt(before.noise.variance), Math.sqrt(after.noise.variance)]);
  pairs.push(['signal sd', Math.sqrt(before.kernel.signal_variance), Math.sqrt(after.kernel.signal_variance)]);
  const told = (v) => (v > 1e4 ? '∞' : format(v, 3));
  const moved = pairs
    .filter(([, a, b]) => Math.abs(Math.log(b / a)) > 0.05 && told(a) !== told(b))
    .slice(0, 6)
    .map(([name, a, b]) => `${name} ${told(a)} → ${told(b)}`);
  const [from, to] = [kernelName(before.kernel), kernelName(after.kernel)];
  if (from !== to) moved.unshift(`kernel ${from} → ${to}`);
  moved.push(`dictionary ${before.dictionary_size} → ${after.dictionary_size}`);
  return moved.join(', ');
}

/** How held-out returns chose: what other lambdas lose, the kernels compared, and why the present model stayed or went. */
function selection({ selection: s }) {
  if (!s) return [];
  const loss = ({ lambda, score }) => `${lambda} ${score === 1 ? 'best' : `+${format(100 * (score - 1), 2)} %`}`;
  const kernels = s.candidates.map((c) => `${c.name} ${format(c.score, 4)} (λ ${c.lambda}, ${c.elements} states)`);
  const present =
    typeof s.gain === 'number'
      ? `the current model ${s.present_stays ? 'stays' : 'is replaced'}: the best error is lower by ` +
        `${format(s.gain, 2)}, with a standard error of ${format(s.standard_error, 2)}`
      : null;
  return [`λ ${s.lambdas.map(loss).join(', ')}`, `held-out errors: ${kernels.join(', ')}`, present];
}

function gain(mark) {
  if (typeof mark.evidence_after !== 'number' || typeof mark.evidence_before !== 'number') return null;
  const nats = mark.evidence_after - mark.evidence_before;
  const className = mark.event !== 'adopted' ? 'hint' : nats >= 0 ? 'gain' : 'loss';
  return el('span', { className, textContent: `${nats >= 0 ? '+' : ''}${format(nats, 3)} nats` });
}

function markList() {
  const items = marks()
    .reverse()
    .map((mark) => {
      // What it changed, or why it did not; how it came about; what was found on the way.
      const lines = [mark.event === 'drift' ? unlike(mark) : (changes(mark) ?? mark.reason)];
      if (mark.trigger) {
        const parts = [
          TRIGGERS[mark.trigger] ?? mark.trigger,
          mark.selection
            ? `held-out returns of ${grouped(mark.selection.rows)} rows`
            : `evidence on ${grouped(mark.evidence_rows)} rows`,
          `${grouped(mark.evaluations)} evaluations`,
          `${format(mark.seconds, 2)} s${mark.out_of_time ? ', out of time' : ''}`,
        ];
        if (mark.active_bounds?.length) parts.push(`at a bound: ${mark.active_bounds.join(', ')}`);
        if (mark.rows_left_out) parts.push(`${grouped(mark.rows_left_out)} rows left out`);
        lines.push(parts.join(' · '), ...selection(mark));
      }
      if (mark.event === 'adopted') lines.push((mark.findings ?? []).join(' · '));
      const when = new Date(1000 * mark.time);
      return el(
        'li',
        { data: { kind: kindOf(mark), number: mark.number } },
        el('i', { 'aria-hidden': 'true' }),
        el('span', {}, el('b', { textContent: title(mark) }), ' ', gain(mark)),
        el('time', { dateTime: when.toISOString(), textContent: when.toLocaleTimeString([], { hour12: false }) }),
        ...lines.filter(Boolean).map((words) => el('span', { className: 'details', textContent: words })),
      );
    });
  list(
    $('marks'),
    items.length
      ? items
      : [
          el('li', {
            className: 'empty-row',
            textContent:
              'No refit has selected a model yet. The first one is due after refit_first_rows rows. To start it ' +
                'now: criticd refit',
          }),
        ],
  );
}

// ---------------------------------------------------------------------------------------------- over time

const SPANS = [
  [120, '2 min'],
  [600, '10 min'],
  [7200, '2 h'],
  [43200, '12 h'],
];
const LINES = [
  {
    title: 'Log evidence',
    unit: 'nats',
    // Where held-out returns select there is none, and their error is shown in its place.
    wanted: () => series('log_evidence').some((v) => v !== null),
    of: () => [{ values: series('log_evidence'), colour: 'accent' }],
  },
  {
    title: 'Held-out error',
    hint: 'of the model in use, at its selection; 1 is the error of a constant',
    unit: '',
    zero: true,
    wanted: () => series('held_out_error').some((v) => v !== null),
    of: () => [{ values: series('held_out_error'), colour: 'accent' }],
  },
  {
    title: 'Log score',
    hint: 'recent average; grey: since the adoption',
    unit: 'nats/row',
    of: () => [
      { values: series('score'), colour: 'soft', thin: true },
      { values: series('score_recent'), colour: 'accent' },
    ],
  },
  {
    title: 'Dictionary',
    hint: 'grey: the most it may hold',
    unit: 'states',
    zero: true,
    limit: () => critic()?.dictionary_max,
    of: () => [{ values: series('dictionary_size'), colour: 'accent' }],
  },
  { title: 'Running chains', unit: '', zero: true, of: () => [{ values: series('running_chains'), colour: 'accent' }] },
  {
    title: 'Rows per second',
    unit: '',
    zero: true,
    of: () => [{ values: known.history.rows_per_second, colour: 'accent' }],
  },
  { title: 'Rows taken in', unit: '', zero: true, of: () => [{ values: known.history.offset, colour: 'accent' }] },
  {
    title: 'Messages waiting',
    hint: 'on ingest; orange: calls',
    unit: '',
    zero: true,
    of: () => [
      { values: known.history.queue_calls, colour: 'second', thin: true },
      { values: known.history.queue_ingest, colour: 'accent' },
    ],
  },
  {
    title: 'Memory',
    hint: 'of the process; grey: the rows kept',
    unit: 'bytes',
    zero: true,
    mebibytes: true,
    of: () => [
      { values: known.history.window_bytes, colour: 'soft', thin: true },
      { values: known.history.resident_bytes, colour: 'accent' },
    ],
  },
];
let pointed = null;

function buildLines() {
  $('spans').replaceChildren(
    ...SPANS.map(([seconds, words]) => {
      const button = el('button', {
        type: 'button',
        textContent: words,
        'aria-pressed': String(seconds === chosen.span),
      });
      button.addEventListener('click', () => {
        chosen.span = seconds;
        remembered.set('span', seconds);
        for (const [k, [each]] of SPANS.entries())
          $('spans').children[k].setAttribute('aria-pressed', String(each === seconds));
        timelines();
      });
      return button;
    }),
  );
  $('lines').replaceChildren(
    ...LINES.map((line) => {
      line.value = el('b');
      const label = [line.title, line.hint].filter(Boolean).join(', ');
      line.canvas = el('canvas', {
        className: 'plot',
        tabIndex: 0,
        role: 'img',
        'aria-label': label,
        title: line.hint ?? '',
      });
      const point = (offset) => {
        pointed = offset === null ? null : timeAt(line.canvas, offset, spanNow());
        timelines();
      };
      line.canvas.addEventListener('pointermove', (e) => point(e.offsetX));
      line.canvas.addEventListener('pointerdown', (e) => point(e.offsetX));
      line.canvas.addEventListener('pointerleave', () => point(null));
      line.canvas.addEventListener('blur', () => point(null));
      line.canvas.addEventListener('keydown', (e) => {
        const by = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
        if (!by) return;
        e.preventDefault();
        const [from, to] = spanNow();
        pointed = Math.min(Math.max((pointed ?? to) + (by * chosen.span) / 60, from), to);
        timelines();
      });
      new ResizeObserver(() => timelines()).observe(line.canvas);
      line.card = el('div', { className: 'card line' }, el('h3', {}, line.title, line.value), line.canvas);
      line.card.hidden = Boolean(line.wanted);
      return line.card;
    }),
  );
}

/** From when to when is shown: the whole span, or as long as there is something to show, but at least a minute. */
function spanNow() {
  const to = known.history.time?.at(-1) ?? 0;
  const oldest = known.history.time?.[0] ?? to;
  return [Math.max(to - chosen.span, Math.min(oldest, to - 60)), to];
}

let timelinePending = 0;

function timelines() {
  timelinePending ||= requestAnimationFrame(() => {
    timelinePending = 0;
    if (!known.columns.length || $('time').hidden) return;
    const times = known.history.time;
    const span = spanNow();
    const at = pointed !== null && pointed >= span[0] ? pointed : null;
    let k = times.length - 1;
    if (at !== null) while (k > 0 && times[k] > at) k -= 1;
    const shown = marks()
      .filter((m) => kindOf(m) !== 'other')
      .map((m) => ({ time: m.time, kind: kindOf(m) }));
    for (const line of LINES) {
      if (line.wanted) line.card.hidden = !line.wanted();
      if (line.card.hidden) continue;
      const lines = line
        .of()
        .map((each) =>
          line.mebibytes ? { ...each, values: each.values.map((v) => (v === null ? null : v / 1048576)) } : each,
        );
      timeline(line.canvas, { lines, times, span, marks: shown, at, zero: line.zero, limit: line.limit?.() });
      const value = line.of().at(-1).values[k] ?? null;
      say(line.value, line.mebibytes ? bytes(value ?? NaN) : `${format(value)} ${line.unit}`);
    }
    const near =
      at === null
        ? null
        : marks()
            .filter((m) => Math.abs(m.time - at) < (span[1] - span[0]) / 80)
            .at(-1);
    const ago = at === null ? '' : `${duration(span[1] - at)} ago`;
    $('time-out').replaceChildren(
      ...(at === null
        ? []
        : [
            ago,
            ...(near
              ? [
                  ': ',
                  el('b', { textContent: title(near) }),
                  ' ',
                  gain(near),
                  ` ${near.reason ?? changes(near) ?? ''}`,
                ].filter((x) => x !== null)
              : []),
          ]),
    );
  });
}

// ---------------------------------------------------------------------------------------------- empty states

const EXAMPLE = (ingest) => `import msgpack, time, zmq                     # pip install pyzmq msgpack
push = zmq.Context.instance().socket(zmq.PUSH)
push.connect("${ingest}")
session, state = str(time.time()), [0.0]
for seq in range(1000):
    next_state = [0.9 * state[0] + 0.1]       # your robot instead
    last = seq % 50 == 49
    push.send(msgpack.packb({
        "v": 1, "stream": "walker", "session": session, "seq": seq, "state": state,
        "next_state": next_state, "reward": -state[0], "truncated": last}))
    state = [0.0] if last else next_state`;

function empty() {
  const s = known.status;
  const c = critic();
  const ready = s && c.kernel && known.states?.median.length;
  $('empty').hidden = Boolean(ready);
  for (const id of ['view', 'trio', 'selection']) $(id).hidden = !ready;
  $('time').hidden = !s || s.offset === 0;
  if (ready) return;
  const none = !s || s.offset === 0;
  $('empty-how').hidden = !s || !none;
  $('empty-progress').hidden = true;
  if (!s) {
    say($('empty-title'), 'Waiting for the daemon');
    say($('empty-text'), 'A running daemon sends its status every second.');
  } else if (c.failed) {
    say($('empty-title'), `The critic ${c.name} has failed`);
    say($('empty-text'), `It has stopped learning: ${c.failed}. The other critics continue. Please report this with the log.`);
  } else if (none) {
    say($('empty-title'), 'No rows yet');
    say($('empty-text'), `Send some transitions to ${known.endpoints.ingest}. In Python:`);
    say($('empty-code'), EXAMPLE(known.endpoints.ingest));
  } else {
    const needed = c.warmup_rows;
    say($('empty-title'), `${grouped(s.offset)} of ${grouped(needed)} rows`);
    say($('empty-text'), `The first model appears after ${grouped(needed)} rows (warmup_rows).`);
    $('empty-progress').hidden = false;
    $('empty-progress').value = Math.min(1, s.offset / needed);
  }
}

// ---------------------------------------------------------------------------------------------- all together

let revision = null;

function render() {
  empty();
  if (!known.status) return;
  vitals();
  streams();
  markList();
  if (!$('view').hidden) {
    axes();
    modelCard();
    relevanceCard();
    calibrationCard();
    headChoice();
    const now = `${chosen.critic} ${critic().generation} ${critic().revision} ${critic().learned}`;
    if (now !== revision || !drawn) {
      revision = now;
      see();
    }
  }
  timelines();
}

function headChoice() {
  const heads = drawn?.heads ?? 1;
  $('head-choice').hidden = heads < 2;
  if ($('head').childElementCount !== heads) {
    $('head').replaceChildren(
      ...Array.from({ length: heads }, (_, k) => el('option', { value: k, textContent: String(k) })),
    );
    $('head').value = chosen.head;
  }
}

function chooseAxes(x, y) {
  Object.assign(chosen, { x, y });
  remembered.set(`axes.${critic().name}.${dim()}`, [x, y]);
  sliders();
  see();
}

$('axis-x').addEventListener('change', () => {
  const x = Number($('axis-x').value);
  chooseAxes(x, x === chosen.y ? chosen.x : chosen.y);
});
$('axis-y').addEventListener('change', () => {
  const y = $('axis-y').value === '' ? null : Number($('axis-y').value);
  chooseAxes(y === chosen.x ? (chosen.y ?? ranked().find((k) => k !== y)) : chosen.x, y);
});
$('swap').addEventListener('click', () => chooseAxes(chosen.y, chosen.x));
$('medians').addEventListener('click', () => {
  medians();
  see();
});
for (const id of ['show-dictionary', 'show-recent', 'fade']) $(id).addEventListener('change', show);
$('head').addEventListener('change', () => {
  chosen.head = Number($('head').value);
  see();
});
$('critic').addEventListener('change', () => {
  chosen.critic = Number($('critic').value);
  choices();
  render();
});
document.addEventListener('visibilitychange', () => !document.hidden && render());

const dark = matchMedia('(prefers-color-scheme: dark)');

function theme(name) {
  if (name) document.documentElement.dataset.theme = name;
  readTheme();
  show();
  if (known.status) render();
}

$('theme').addEventListener('click', () => {
  const now = document.documentElement.dataset.theme ?? (dark.matches ? 'dark' : 'light');
  const next = now === 'dark' ? 'light' : 'dark';
  remembered.set('theme', next);
  theme(next);
});
dark.addEventListener('change', () => theme());

buildLines();
theme(remembered.get('theme'));
render();
listen();
