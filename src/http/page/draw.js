// Pictures on canvases: heat maps, curves, time lines, scatter. Nothing here knows where the numbers come from.

const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';
// Pixels of a heat map's image in each direction; the canvas enlarges it smoothly.
const IMAGE = { width: 210, height: 150 };
const EASE_MS = 700;
const reduced = matchMedia('(prefers-reduced-motion: reduce)');

/** Colours of the theme as they are now, by name. */
let inks = {};
/** Red, green and blue of the two colour maps, 256 of each. */
const maps = {};

export function readTheme() {
  const probe = document.createElement('span');
  document.body.append(probe);
  for (const name of [
    'ground',
    'card',
    'ink',
    'soft',
    'rule',
    'grid',
    'accent',
    'accent-soft',
    'second',
    'rim',
    'bad',
    'warn',
  ]) {
    probe.style.color = `var(--${name})`;
    inks[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  inks.surface = inks.card
    .match(/[\d.]+/g)
    .slice(0, 3)
    .map(Number);
}

export function setColours(name, hex) {
  maps[name] = Uint8Array.from(hex.match(/../g), (pair) => parseInt(pair, 16));
}

/** A number for people: `digits` significant ones, a true minus, powers of ten only where needed. */
export function format(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return '–';
  if (!Number.isFinite(value)) return value > 0 ? '∞' : '−∞';
  const size = Math.abs(value);
  let text;
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) {
    const [mantissa, exponent] = value.toExponential(Math.max(0, digits - 2)).split('e');
    text = `${mantissa}·10${superscript(Number(exponent))}`;
  } else if (size >= 10 ** (digits - 1)) {
    text = grouped(value);
  } else {
    text = String(Number(value.toPrecision(digits)));
  }
  return text.replace('-', '−');
}

const superscript = (n) => String(n).replace(/./g, (c) => (c === '-' ? '⁻' : '⁰¹²³⁴⁵⁶⁷⁸⁹'[c]));

/** A whole number in groups of three. */
export function grouped(value) {
  return String(Math.round(value))
    .replace('-', '−')
    .replace(/\B(?=(\d{3})+(?!\d))/g, '\u202f');
}

/** Seconds for people. */
export function duration(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}

/** Bytes for people. */
export function bytes(value) {
  if (!Number.isFinite(value)) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB'];
  let k = 0;
  for (; value >= 1024 && k < 3; k += 1) value /= 1024;
  return `${format(value, 3)} ${units[k]}`;
}

/** The step of about `count` ticks over a span: 1, 2 or 5 times a power of ten. */
function step(span, count) {
  const rough = span / count;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const r = rough / unit;
  return unit * (r < Math.SQRT2 ? 1 : r < Math.sqrt(10) ? 2 : r < Math.sqrt(50) ? 5 : 10);
}

/** Places of about `count` ticks in [low, high], each with its text. */
export function ticks(low, high, count) {
  const by = step(high - low, count);
  const decimals = Math.max(0, -Math.floor(Math.log10(by) + 1e-9));
  const out = [];
  for (let k = Math.ceil(low / by - 1e-6); k <= Math.floor(high / by + 1e-6); k += 1) {
    const value = k * by;
    const plain = Math.max(Math.abs(low), Math.abs(high)) < 1e5 && by >= 1e-4;
    out.push([value, plain ? value.toFixed(decimals).replace('-', '−') : value === 0 ? '0' : format(value, 3)]);
  }
  return out;
}

/** The range widened to round numbers. */
export function round([low, high], count = 5) {
  if (!(low < high)) {
    const half = Math.max(Math.abs(low) * 0.5, 1e-3);
    return [low - half, high + half];
  }
  const by = step(high - low, count);
  return [Math.floor(low / by + 1e-6) * by, Math.ceil(high / by - 1e-6) * by];
}

/** The canvas's context, in CSS pixels, cleared; null while it is not shown. */
function context(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  if (!width || !height) return null;
  const scale = Math.min(devicePixelRatio || 1, 2);
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const c = canvas.getContext('2d');
  c.setTransform(scale, 0, 0, scale, 0, 0);
  c.clearRect(0, 0, width, height);
  c.font = FONT;
  c.lineJoin = 'round';
  return { c, width, height };
}

function text(c, words, x, y, align = 'left', baseline = 'middle', colour = inks.soft) {
  c.fillStyle = colour;
  c.textAlign = align;
  c.textBaseline = baseline;
  c.fillText(words, x, y);
}

/** Numbers on a grid, from the lowest row up. */
export class Field {
  constructor(columns, rows, values) {
    Object.assign(this, { columns, rows, values });
  }

  /** Between the centres of cells, at shares (across, up) of the whole; beyond the outermost centres as there. */
  at(across, up) {
    const [i0, i1, s] = between(across, this.columns);
    const [j0, j1, t] = between(up, this.rows);
    const v = this.values;
    const lower = (1 - s) * v[j0 * this.columns + i0] + s * v[j0 * this.columns + i1];
    const upper = (1 - s) * v[j1 * this.columns + i0] + s * v[j1 * this.columns + i1];
    return (1 - t) * lower + t * upper;
  }

  /** The same, for every pixel of an image, from the top down. */
  enlarge(width, height) {
    const out = new Float32Array(width * height);
    const across = Array.from({ length: width }, (_, i) => between((i + 0.5) / width, this.columns));
    for (let j = 0; j < height; j += 1) {
      const [j0, j1, t] = between(1 - (j + 0.5) / height, this.rows);
      const low = j0 * this.columns;
      const high = j1 * this.columns;
      for (let i = 0; i < width; i += 1) {
        const [i0, i1, s] = across[i];
        const v = this.values;
        out[j * width + i] =
          (1 - t) * ((1 - s) * v[low + i0] + s * v[low + i1]) + t * ((1 - s) * v[high + i0] + s * v[high + i1]);
      }
    }
    return out;
  }
}

function between(share, count) {
  const place = Math.min(Math.max(share * count - 0.5, 0), count - 1);
  const k = Math.min(Math.floor(place), Math.max(count - 2, 0));
  return [k, Math.min(k + 1, count - 1), place - k];
}

const smooth = (t) => t * t * (3 - 2 * t);

/** A picture that eases from what it showed to what it should show, and says where somebody points. */
class Picture {
  constructor(canvas, say) {
    Object.assign(this, { canvas, say, pointer: null, began: 0, pending: 0 });
    canvas.addEventListener('pointermove', (e) => this.point(e.offsetX, e.offsetY));
    canvas.addEventListener('pointerdown', (e) => this.point(e.offsetX, e.offsetY));
    canvas.addEventListener('pointerleave', () => this.point(null));
    canvas.addEventListener('blur', () => this.point(null));
    canvas.addEventListener('keydown', (e) => {
      const by = { ArrowLeft: [-8, 0], ArrowRight: [8, 0], ArrowUp: [0, -8], ArrowDown: [0, 8] }[e.key];
      if (!by) return;
      e.preventDefault();
      const [x, y] = this.pointer ?? [canvas.clientWidth / 2, canvas.clientHeight / 2];
      this.point(x + by[0], y + by[1]);
    });
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  point(x, y) {
    this.pointer = x === null ? null : [x, y];
    this.draw();
  }

  ease() {
    this.began = reduced.matches ? -Infinity : performance.now();
  }

  /** How far the easing has come, 0 to 1. */
  progress() {
    return smooth(Math.min(1, (performance.now() - this.began) / EASE_MS));
  }

  draw() {
    if (this.pending || this.asleep) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = 0;
      if (this.asleep) return;
      this.paint();
      // Some twenty pictures a second are smooth enough.
      if (this.progress() < 1) setTimeout(() => this.draw(), 35);
    });
  }
}

const mix = (a, b, t) => a + (b - a) * t;

/** A function of two variables in colour. */
export class HeatMap extends Picture {
  constructor(canvas, colours, say) {
    super(canvas, say);
    this.colours = colours;
    this.image = document.createElement('canvas');
    this.image.width = IMAGE.width;
    this.image.height = IMAGE.height;
  }

  /**
   * `next`: field; range [[x0, x1], [y0, y1]]; scale [low, high]; names [x, y]; fade (a field of 0 to 1) or null;
   * points [{at: [[x, y]], kind}]; generation; key, which changes where easing would mix what does not belong together.
   */
  show(next) {
    const before = this.next;
    const same = before && before.key === next.key && before.field.values.length === next.field.values.length;
    const moved = same && (before.generation !== next.generation || before.scale.some((v, k) => v !== next.scale[k]));
    if (!same) {
      this.from = null;
      this.began = -Infinity;
    } else if (moved) {
      this.from = this.present();
      this.ease();
    }
    this.next = next;
    this.stale = true;
    this.draw();
  }

  /** What is shown at this moment. */
  present() {
    const t = this.from ? this.progress() : 1;
    const { field, scale } = this.next;
    if (t >= 1) return { values: field.values, scale };
    const values = field.values.map((v, k) => mix(this.from.values[k], v, t));
    return { values, scale: scale.map((v, k) => mix(this.from.scale[k], v, t)) };
  }

  paint() {
    const drawn = context(this.canvas);
    if (!drawn || !this.next || !maps[this.colours]) return;
    const { c, width, height } = drawn;
    const { range, names, points, field } = this.next;
    const easing = this.from && this.progress() < 1;
    const { values, scale } = this.present();
    const shown = new Field(field.columns, field.rows, values);
    if (this.stale || easing || this.surface !== inks.card) this.colour(shown, scale);
    this.stale = Boolean(easing);
    this.surface = inks.card;

    const barTicks = ticks(scale[0], scale[1], 5);
    const yTicks = ticks(range[1][0], range[1][1], Math.max(3, height / 60));
    const widest = (list) => Math.max(...list.map(([, words]) => c.measureText(words).width), 10);
    const plot = {
      left: widest(yTicks) + 30,
      top: 6,
      right: width - widest(barTicks) - 38,
      bottom: height - 38,
    };
    const x = (v) => plot.left + ((v - range[0][0]) / (range[0][1] - range[0][0])) * (plot.right - plot.left);
    const y = (v) => plot.bottom - ((v - range[1][0]) / (range[1][1] - range[1][0])) * (plot.bottom - plot.top);
    c.imageSmoothingEnabled = true;
    c.imageSmoothingQuality = 'high';
    c.drawImage(this.image, plot.left, plot.top, plot.right - plot.left, plot.bottom - plot.top);
    this.contours(
      c,
      shown,
      barTicks.map(([v]) => v),
      plot,
    );
    c.save();
    c.beginPath();
    c.rect(plot.left, plot.top, plot.right - plot.left, plot.bottom - plot.top);
    c.clip();
    const size = Math.min(1, Math.max(0.7, (plot.right - plot.left) / 480));
    for (const { at, kind } of points) at.forEach(([px, py]) => marker(c, kind, x(px), y(py), size));
    c.restore();

    c.strokeStyle = inks.rule;
    c.lineWidth = 1;
    c.strokeRect(plot.left - 0.5, plot.top - 0.5, plot.right - plot.left + 1, plot.bottom - plot.top + 1);
    const xTicks = ticks(range[0][0], range[0][1], Math.max(3, (plot.right - plot.left) / 80));
    for (const [v, words] of xTicks) {
      c.fillStyle = inks.soft;
      c.fillRect(Math.round(x(v)), plot.bottom, 1, 4);
      text(c, words, x(v), plot.bottom + 7, 'center', 'top');
    }
    for (const [v, words] of yTicks) {
      c.fillStyle = inks.soft;
      c.fillRect(plot.left - 5, Math.round(y(v)), 4, 1);
      text(c, words, plot.left - 9, y(v), 'right');
    }
    text(c, names[0], (plot.left + plot.right) / 2, height - 1, 'center', 'bottom', inks.ink);
    c.save();
    c.translate(8, (plot.top + plot.bottom) / 2);
    c.rotate(-Math.PI / 2);
    text(c, names[1], 0, 0, 'center', 'middle', inks.ink);
    c.restore();
    this.bar(c, plot, scale, barTicks);
    this.hover(c, plot, shown);
  }

  /** Colour the image. */
  colour(shown, [low, high]) {
    const { width, height } = IMAGE;
    const values = shown.enlarge(width, height);
    const fade = this.next.fade?.enlarge(width, height);
    const c = this.image.getContext('2d');
    const image = c.createImageData(width, height);
    const table = maps[this.colours];
    const [r, g, b] = inks.surface;
    for (let k = 0; k < values.length; k += 1) {
      const share = Math.min(Math.max((values[k] - low) / (high - low), 0), 1);
      const at = 3 * Math.round(share * 255);
      const pale = fade ? Math.min(Math.max(fade[k], 0), 1) : 0;
      image.data[4 * k] = mix(table[at], r, pale);
      image.data[4 * k + 1] = mix(table[at + 1], g, pale);
      image.data[4 * k + 2] = mix(table[at + 2], b, pale);
      image.data[4 * k + 3] = 255;
    }
    c.putImageData(image, 0, 0);
  }

  /** Lines of equal value, where it is known. */
  contours(c, shown, levels, plot) {
    const { columns, rows, values } = shown;
    const { fade } = this.next;
    const px = (i) => plot.left + ((i + 0.5) / columns) * (plot.right - plot.left);
    const py = (j) => plot.bottom - ((j + 0.5) / rows) * (plot.bottom - plot.top);
    c.beginPath();
    for (let j = 0; j + 1 < rows; j += 1) {
      for (let i = 0; i + 1 < columns; i += 1) {
        const corners = [
          values[j * columns + i],
          values[j * columns + i + 1],
          values[(j + 1) * columns + i + 1],
          values[(j + 1) * columns + i],
        ];
        const least = Math.min(...corners);
        const most = Math.max(...corners);
        for (const level of levels) {
          if (level <= least || level > most) continue;
          if (fade && fade.at((i + 1) / columns, (j + 1) / rows) > 0.6) continue;
          const ends = [];
          for (let e = 0; e < 4; e += 1) {
            const [a, b] = [corners[e], corners[(e + 1) % 4]];
            if (a < level === b < level) continue;
            const t = (level - a) / (b - a);
            ends.push(
              [
                [i + t, j],
                [i + 1, j + t],
                [i + 1 - t, j + 1],
                [i, j + 1 - t],
              ][e],
            );
          }
          for (let k = 0; k + 1 < ends.length; k += 2) {
            c.moveTo(px(ends[k][0]), py(ends[k][1]));
            c.lineTo(px(ends[k + 1][0]), py(ends[k + 1][1]));
          }
        }
      }
    }
    c.strokeStyle = 'rgba(255, 255, 255, 0.38)';
    c.lineWidth = 0.9;
    c.stroke();
  }

  /** The colour bar. */
  bar(c, plot, [low, high], barTicks) {
    const left = plot.right + 12;
    const table = maps[this.colours];
    const tall = plot.bottom - plot.top;
    for (let j = 0; j < tall; j += 1) {
      const k = 3 * Math.round((1 - j / tall) * 255);
      c.fillStyle = `rgb(${table[k]} ${table[k + 1]} ${table[k + 2]})`;
      c.fillRect(left, plot.top + j, 11, 1.5);
    }
    for (const [v, words] of barTicks) {
      const at = plot.bottom - ((v - low) / (high - low)) * tall;
      c.fillStyle = inks.soft;
      c.fillRect(left + 11, Math.round(at), 4, 1);
      text(c, words, left + 19, at);
    }
  }

  /** A cross where somebody points, and what is there. */
  hover(c, plot, shown) {
    const { range } = this.next;
    if (!this.pointer) return this.say(null);
    const across = (this.pointer[0] - plot.left) / (plot.right - plot.left);
    const up = (plot.bottom - this.pointer[1]) / (plot.bottom - plot.top);
    if (across < 0 || across > 1 || up < 0 || up > 1) return this.say(null);
    cross(c, plot, this.pointer);
    const place = [mix(...range[0], across), mix(...range[1], up)];
    return this.say({ place, value: shown.at(across, up), across, up });
  }
}

function cross(c, plot, [x, y]) {
  for (const [colour, wide] of [
    [inks.rim, 2.4],
    [inks.ink, 0.8],
  ]) {
    c.strokeStyle = colour;
    c.lineWidth = wide;
    c.globalAlpha = 0.75;
    c.beginPath();
    c.moveTo(plot.left, y);
    c.lineTo(plot.right, y);
    c.moveTo(x, plot.top);
    c.lineTo(x, plot.bottom);
    c.stroke();
  }
  c.globalAlpha = 1;
}

function marker(c, kind, x, y, size) {
  c.beginPath();
  if (kind === 'dictionary') {
    c.arc(x, y, 3.1 * size, 0, 7);
    c.lineWidth = 2.4 * size;
    c.strokeStyle = 'rgba(0, 0, 0, 0.5)';
    c.stroke();
    c.lineWidth = 1.15 * size;
    c.strokeStyle = 'rgba(255, 255, 255, 0.95)';
    c.stroke();
  } else {
    c.arc(x, y, 1.7 * size, 0, 7);
    c.fillStyle = 'rgba(0, 0, 0, 0.55)';
    c.fill();
    c.beginPath();
    c.arc(x, y, 1.05 * size, 0, 7);
    c.fillStyle = '#fff';
    c.fill();
  }
}

/** A function of one variable, with a band. */
export class Curve extends Picture {
  /** `next`: range [x0, x1]; scale [low, high]; mean, deviation (arrays); name; points; key; generation. */
  show(next) {
    const before = this.next;
    const same = before && before.key === next.key && before.mean.length === next.mean.length;
    if (same && (before.generation !== next.generation || before.scale.some((v, k) => v !== next.scale[k]))) {
      this.from = this.present();
      this.ease();
    } else if (!same) {
      this.from = null;
    }
    this.next = next;
    this.draw();
  }

  present() {
    const t = this.from ? this.progress() : 1;
    const { mean, deviation, scale } = this.next;
    if (t >= 1) return { mean, deviation, scale };
    const eased = (name) => this.next[name].map((v, k) => mix(this.from[name][k], v, t));
    return { mean: eased('mean'), deviation: eased('deviation'), scale: eased('scale') };
  }

  paint() {
    const drawn = context(this.canvas);
    if (!drawn || !this.next) return;
    const { c, width, height } = drawn;
    const { range, name, points } = this.next;
    const { mean, deviation, scale } = this.present();
    const yTicks = ticks(scale[0], scale[1], Math.max(3, height / 60));
    const widest = Math.max(...yTicks.map(([, words]) => c.measureText(words).width));
    const plot = { left: widest + 14, top: 8, right: width - 10, bottom: height - 38 };
    const x = (v) => mix(plot.left, plot.right, (v - range[0]) / (range[1] - range[0]));
    const y = (v) => mix(plot.bottom, plot.top, (v - scale[0]) / (scale[1] - scale[0]));
    frame(c, plot, ticks(range[0], range[1], Math.max(3, width / 90)), yTicks, x, y);
    text(c, name, (plot.left + plot.right) / 2, height - 1, 'center', 'bottom', inks.ink);
    const place = (k) => x(mix(range[0], range[1], (k + 0.5) / mean.length));
    c.save();
    c.beginPath();
    c.rect(plot.left, plot.top, plot.right - plot.left, plot.bottom - plot.top);
    c.clip();
    if (deviation.length) {
      // Two standard deviations, and within them one.
      for (const widths of [2, 1]) {
        c.beginPath();
        for (let k = 0; k < mean.length; k += 1) c.lineTo(place(k), y(mean[k] + widths * deviation[k]));
        for (let k = mean.length - 1; k >= 0; k -= 1) c.lineTo(place(k), y(mean[k] - widths * deviation[k]));
        c.fillStyle = inks['accent-soft'];
        c.fill();
      }
    }
    c.beginPath();
    for (let k = 0; k < mean.length; k += 1) c.lineTo(place(k), y(mean[k]));
    c.strokeStyle = inks.accent;
    c.lineWidth = 2;
    c.stroke();
    for (const { at, kind } of points) {
      for (const [v] of at) {
        const share = ((v - range[0]) / (range[1] - range[0])) * mean.length - 0.5;
        if (kind === 'dictionary') {
          c.beginPath();
          c.arc(x(v), y(mean[Math.min(Math.max(Math.round(share), 0), mean.length - 1)]), 3.4, 0, 7);
          c.fillStyle = inks.card;
          c.fill();
          c.strokeStyle = inks.accent;
          c.lineWidth = 1.4;
          c.stroke();
        } else {
          c.fillStyle = inks.soft;
          c.globalAlpha = 0.4;
          c.fillRect(x(v) - 0.5, plot.bottom - 9, 1, 9);
          c.globalAlpha = 1;
        }
      }
    }
    c.restore();
    const across = this.pointer ? (this.pointer[0] - plot.left) / (plot.right - plot.left) : -1;
    if (across < 0 || across > 1) return this.say(null);
    const k = Math.min(Math.floor(across * mean.length), mean.length - 1);
    cross(c, plot, [this.pointer[0], y(mean[k])]);
    const place_ = [mix(range[0], range[1], across)];
    return this.say({ place: place_, value: mean[k], deviation: deviation[k], across, up: 0 });
  }
}

/** Grid, ticks and their texts. */
function frame(c, plot, xTicks, yTicks, x, y) {
  c.fillStyle = inks.grid;
  for (const [v] of xTicks) c.fillRect(Math.round(x(v)), plot.top, 1, plot.bottom - plot.top);
  for (const [v] of yTicks) c.fillRect(plot.left, Math.round(y(v)), plot.right - plot.left, 1);
  for (const [v, words] of xTicks) text(c, words, x(v), plot.bottom + 6, 'center', 'top');
  for (const [v, words] of yTicks) text(c, words, plot.left - 6, y(v), 'right');
}

/**
 * Numbers over time. `lines`: [{values, colour, thin?}]; times: rising; span [from, to]; marks [{time, kind}]; at: the
 * time that somebody points at, or null; zero: whether the axis begins there; limit: a level drawn faintly, or null.
 */
export function timeline(canvas, { lines, times, span, marks, at, zero, limit }) {
  const drawn = context(canvas);
  if (!drawn) return;
  const { c, width, height } = drawn;
  const [from, to] = span;
  let low = Infinity;
  let high = -Infinity;
  const first = times.findIndex((t) => t >= from);
  for (const { values } of lines) {
    for (let k = Math.max(first, 0); first >= 0 && k < values.length; k += 1) {
      if (values[k] === null || times[k] > to) continue;
      low = Math.min(low, values[k]);
      high = Math.max(high, values[k]);
    }
  }
  // Above the plot is a lane for marks.
  const plot = { left: 4, top: 14, right: width - 4, bottom: height - 17 };
  const x = (t) => mix(plot.left, plot.right, (t - from) / (to - from));
  c.fillStyle = inks.grid;
  c.fillRect(plot.left, plot.bottom, plot.right - plot.left, 1);
  if (low <= high) {
    if (zero) [low, high] = [Math.min(0, low), high === 0 ? 1 : high];
    [low, high] = round([low, high], 3);
    const y = (v) => mix(plot.bottom, plot.top, (v - low) / (high - low));
    const levels = ticks(low, high, 2);
    c.fillStyle = inks.grid;
    for (const [v] of levels) c.fillRect(plot.left, Math.round(y(v)), plot.right - plot.left, 1);
    if (limit !== null && limit !== undefined && limit <= high) {
      c.fillStyle = inks.soft;
      c.globalAlpha = 0.5;
      c.fillRect(plot.left, Math.round(y(limit)), plot.right - plot.left, 1);
      c.globalAlpha = 1;
    }
    drawMarks(c, plot, x, marks, span);
    for (const { values, colour, thin } of lines) {
      c.beginPath();
      let running = false;
      let reached = -Infinity;
      for (let k = Math.max(0, first - 1); k < values.length && times[k] <= to; k += 1) {
        if (values[k] === null) {
          running = false;
          continue;
        }
        // A point in each half pixel is enough.
        const place = x(times[k]);
        if (running && place - reached < 0.5 && k + 1 < values.length) continue;
        reached = place;
        if (running) c.lineTo(place, y(values[k]));
        else c.moveTo(place, y(values[k]));
        running = true;
      }
      c.strokeStyle = inks[colour];
      c.lineWidth = thin ? 1 : 1.6;
      c.stroke();
    }
    const texts = levels.filter((_, k) => k === 0 || k === levels.length - 1);
    for (const [v, words] of texts) {
      const below = y(v) - plot.top < 14;
      text(c, words, plot.left, y(v) + (below ? 3 : -2), 'left', below ? 'top' : 'bottom');
    }
  } else {
    drawMarks(c, plot, x, marks, span);
    text(c, 'nothing yet', width / 2, (plot.top + plot.bottom) / 2, 'center');
  }
  const ago = (seconds) => (seconds < 1 ? 'now' : `−${duration(seconds).replace(/ 0 (s|min)$/, '')}`);
  text(c, ago(to - from), plot.left, height - 1, 'left', 'bottom');
  text(c, 'now', plot.right, height - 1, 'right', 'bottom');
  if (at !== null && at >= from && at <= to) {
    c.fillStyle = inks.ink;
    c.globalAlpha = 0.6;
    c.fillRect(Math.round(x(at)), plot.top - 6, 1, plot.bottom - plot.top + 6);
    c.globalAlpha = 1;
  }
}

/** Adoptions and changes of the world as lines through the plot, rejections in the lane above it only: there may be many. */
function drawMarks(c, plot, x, marks, [from, to]) {
  for (const { time, kind } of [...marks].sort((a, b) => (a.kind < b.kind ? 1 : -1))) {
    if (time < from || time > to) continue;
    const at = Math.round(x(time)) + 0.5;
    const ink = kind === 'drift' ? inks.warn : inks.second;
    c.strokeStyle = ink;
    c.lineWidth = 1;
    if (kind !== 'rejected') {
      c.globalAlpha = 0.8;
      c.beginPath();
      c.moveTo(at, plot.top - 7);
      c.lineTo(at, plot.bottom);
      c.stroke();
      c.globalAlpha = 1;
    }
    c.beginPath();
    // Shapes beside colours: a change of the world is a square.
    if (kind === 'drift') c.rect(at - 3, plot.top - 11, 6, 6);
    else c.arc(at, plot.top - 8, kind === 'adopted' ? 3.2 : 2.4, 0, 7);
    c.fillStyle = kind === 'rejected' ? inks.card : ink;
    c.fill();
    c.lineWidth = 1.2;
    c.stroke();
  }
}

/** The time at a place of a time line's canvas. */
export function timeAt(canvas, offset, [from, to]) {
  return mix(from, to, Math.min(Math.max((offset - 4) / (canvas.clientWidth - 8), 0), 1));
}

/** Pairs against each other, with the line on which both are equal. `pairs`: [predicted, realised, deviation]. */
export class Scatter extends Picture {
  show(next) {
    this.next = next;
    this.draw();
  }

  paint() {
    const drawn = context(this.canvas);
    if (!drawn || !this.next) return;
    const { c, width, height } = drawn;
    const { pairs, range } = this.next;
    const xTicks = ticks(range[0], range[1], 4);
    const widest = Math.max(...xTicks.map(([, words]) => c.measureText(words).width));
    const plot = { left: widest + 28, top: 6, right: width - 8, bottom: height - 38 };
    const x = (v) => mix(plot.left, plot.right, (v - range[0]) / (range[1] - range[0]));
    const y = (v) => mix(plot.bottom, plot.top, (v - range[0]) / (range[1] - range[0]));
    frame(c, plot, xTicks, xTicks, x, y);
    text(c, 'predicted', (plot.left + plot.right) / 2, height - 1, 'center', 'bottom', inks.ink);
    c.save();
    c.translate(7, (plot.top + plot.bottom) / 2);
    c.rotate(-Math.PI / 2);
    text(c, 'realised', 0, 0, 'center', 'middle', inks.ink);
    c.restore();
    c.save();
    c.beginPath();
    c.rect(plot.left, plot.top, plot.right - plot.left, plot.bottom - plot.top);
    c.clip();
    c.strokeStyle = inks.soft;
    c.lineWidth = 1;
    c.beginPath();
    c.moveTo(x(range[0]), y(range[0]));
    c.lineTo(x(range[1]), y(range[1]));
    c.stroke();
    let nearest = null;
    for (const pair of pairs) {
      const [predicted, realised, deviation] = pair;
      const outside = Math.abs(realised - predicted) > 1.644854 * deviation;
      c.beginPath();
      c.arc(x(predicted), y(realised), 2.6, 0, 7);
      c.fillStyle = outside ? inks.bad : inks.accent;
      c.globalAlpha = 0.55;
      c.fill();
      c.globalAlpha = 1;
      if (this.pointer) {
        const away = Math.hypot(x(predicted) - this.pointer[0], y(realised) - this.pointer[1]);
        if (away < 24 && away < (nearest?.away ?? Infinity)) nearest = { away, pair };
      }
    }
    if (nearest) {
      const [predicted, realised, deviation] = nearest.pair;
      c.strokeStyle = inks.ink;
      c.beginPath();
      c.moveTo(x(predicted), y(predicted - 1.644854 * deviation));
      c.lineTo(x(predicted), y(predicted + 1.644854 * deviation));
      c.stroke();
      c.beginPath();
      c.arc(x(predicted), y(realised), 4.5, 0, 7);
      c.stroke();
    }
    c.restore();
    this.say(nearest?.pair ?? null);
  }
}
