// What all canvases share: the theme's colours, a context in CSS pixels, fields of numbers, pictures that ease.

const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';
const EASE_MS = 700;
const reduced = matchMedia('(prefers-reduced-motion: reduce)');

/** Colours of the theme as they are now, by name. */
/** @type {Record<string, any>} */
export const inks = {};
/** Red, green and blue of the colour maps, 256 of each. @type {Record<string, Uint8Array>} */
export const maps = {};

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
    'good',
    'unknown',
    'below',
    'above',
    'warn',
  ]) {
    probe.style.color = `var(--${name})`;
    inks[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  inks.pale = rgb(inks.unknown);
  diverging();
}

/** Red, green and blue of a colour as the browser writes it. */
function rgb(/** @type {string} */ colour) {
  return (colour.match(/[\d.]+/g) ?? []).slice(0, 3).map(Number);
}

/** The colours of signed numbers: one hue below zero, another above, and at zero the card's. */
function diverging() {
  const [below, zero, above] = [inks.below, inks.card, inks.above].map(rgb);
  maps.signed = new Uint8Array(3 * 256);
  for (let k = 0; k < 256; k += 1) {
    const place = (2 * k) / 255 - 1;
    const end = place < 0 ? below : above;
    for (let j = 0; j < 3; j += 1) maps.signed[3 * k + j] = mix(zero[j], end[j], Math.abs(place) ** 0.8);
  }
}

export function setColours(/** @type {string} */ name, /** @type {string} */ hex) {
  maps[name] = Uint8Array.from(hex.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

/** The canvas that is being painted on another context, and that context. @type {?{canvas: any, c: any}} */
let elsewhere = null;

/** Paint what a canvas shows on another context. @param {any} canvas @param {any} c @param {() => void} paint */
export function paintOn(canvas, c, paint) {
  elsewhere = { canvas, c };
  paint();
  elsewhere = null;
}

/** The pictures of each canvas; one of them is awake. @type {Map<any, Picture[]>} */
const pictures = new Map();

/** Paint what a canvas shows at once. @param {any} canvas */
export function repaint(canvas) {
  pictures.get(canvas)?.find((picture) => !picture.asleep)?.paint();
}

/** The canvas's context, in CSS pixels, cleared; null while it is not shown. */
/** @param {any} canvas */
export function context(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  if (!width || !height) return null;
  if (elsewhere?.canvas === canvas) return { c: elsewhere?.c, width, height };
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

/**
 * @param {CanvasRenderingContext2D} c
 * @param {string} words
 * @param {number} x
 * @param {number} y
 * @param {CanvasTextAlign} [align]
 * @param {CanvasTextBaseline} [baseline]
 */
export function text(c, words, x, y, align = 'left', baseline = 'middle', colour = inks.soft) {
  c.fillStyle = colour;
  c.textAlign = align;
  c.textBaseline = baseline;
  c.fillText(words, x, y);
}

/**
 * The words of a vertical axis, upright about height y, at the left edge or at x.
 * @param {CanvasRenderingContext2D} c
 * @param {string} words
 * @param {number} y
 * @param {number} [x]
 */
export function upright(c, words, y, x = 8) {
  c.save();
  c.translate(x, y);
  c.rotate(-Math.PI / 2);
  text(c, words, 0, 0, 'center', 'middle', inks.ink);
  c.restore();
}

/** Numbers on a grid, from the lowest row up. */
export class Field {
  /** @param {number} columns @param {number} rows @param {Float32Array | number[]} values */
  constructor(columns, rows, values) {
    this.columns = columns;
    this.rows = rows;
    this.values = values;
  }

  /** Between the centres of cells, at shares (across, up) of the whole; beyond the outermost centres as there. */
  at(/** @type {number} */ across, /** @type {number} */ up) {
    const [i0, i1, s] = between(across, this.columns);
    const [j0, j1, t] = between(up, this.rows);
    const v = this.values;
    const lower = (1 - s) * v[j0 * this.columns + i0] + s * v[j0 * this.columns + i1];
    const upper = (1 - s) * v[j1 * this.columns + i0] + s * v[j1 * this.columns + i1];
    return (1 - t) * lower + t * upper;
  }

  /** The number of the cell at shares (across, up) of the whole. */
  cell(/** @type {number} */ across, /** @type {number} */ up) {
    const place = (/** @type {number} */ share, /** @type {number} */ count) => Math.min(Math.max(Math.floor(share * count), 0), count - 1);
    return this.values[place(up, this.rows) * this.columns + place(across, this.columns)];
  }

  /** The same, for every pixel of an image, from the top down; in `blocks`, not between centres. */
  enlarge(/** @type {number} */ width, /** @type {number} */ height, blocks = false) {
    const out = new Float32Array(width * height);
    if (blocks) {
      for (let k = 0; k < out.length; k += 1)
        out[k] = this.cell(((k % width) + 0.5) / width, 1 - (Math.floor(k / width) + 0.5) / height);
      return out;
    }
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

/** The least and greatest value where something is known; anywhere, if that is hardly anywhere. @returns {number[]} */
export function extent(/** @type {Field} */ field, /** @type {?Field} */ fade, most = 0.6) {
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

function between(/** @type {number} */ share, /** @type {number} */ count) {
  const place = Math.min(Math.max(share * count - 0.5, 0), count - 1);
  const k = Math.min(Math.floor(place), Math.max(count - 2, 0));
  return [k, Math.min(k + 1, count - 1), place - k];
}

/** Pixels by which a key moves the pointer. @type {Record<string, number[]>} */
const STEPS = { ArrowLeft: [-8, 0], ArrowRight: [8, 0], ArrowUp: [0, -8], ArrowDown: [0, 8] };

const smooth = (/** @type {number} */ t) => t * t * (3 - 2 * t);

/** A picture that eases from what it showed to what it should show, and says where the pointer is. */
export class Picture {
  /**
   * @param {any} canvas
   * @param {(at: any) => void} say
   */
  constructor(canvas, say) {
    this.canvas = canvas;
    this.say = say;
    /** Where the pointer is, in pixels. @type {?number[]} */
    this.pointer = null;
    this.began = 0;
    this.pending = 0;
    this.asleep = false;
    /** What is shown. @type {any} */
    this.next = null;
    /** What it eases from. @type {any} */
    this.from = null;
    pictures.set(canvas, [...(pictures.get(canvas) ?? []), this]);
    canvas.addEventListener('pointermove', (/** @type {PointerEvent} */ e) => this.point(e.offsetX, e.offsetY));
    canvas.addEventListener('pointerdown', (/** @type {PointerEvent} */ e) => this.point(e.offsetX, e.offsetY));
    canvas.addEventListener('pointerleave', () => this.point(null));
    canvas.addEventListener('blur', () => this.point(null));
    canvas.addEventListener('keydown', (/** @type {KeyboardEvent} */ e) => {
      const by = STEPS[e.key];
      if (!by) return;
      e.preventDefault();
      const [x, y] = this.pointer ?? [canvas.clientWidth / 2, canvas.clientHeight / 2];
      this.point(x + by[0], y + by[1]);
    });
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  /** Somebody points there; nowhere without a place. @param {?number} x @param {number} [y] */
  point(x, y = 0) {
    this.pointer = x === null ? null : [x, y];
    this.draw();
  }

  paint() {}

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

export const mix = (/** @type {number} */ a, /** @type {number} */ b, /** @type {number} */ t) => a + (b - a) * t;

/** A cross at a place. @param {any} c @param {any} plot @param {number[]} place */
export function cross(c, plot, [x, y]) {
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

/**
 * Grid, ticks and their texts.
 * @param {CanvasRenderingContext2D} c
 * @param {import('./types').Plot} plot
 * @param {import('./types').Ticks} xTicks
 * @param {import('./types').Ticks} yTicks
 * @param {import('./types').Scale} x
 * @param {import('./types').Scale} y
 */
export function frame(c, plot, xTicks, yTicks, x, y) {
  c.fillStyle = inks.grid;
  for (const [v] of xTicks) c.fillRect(Math.round(x(v)), plot.top, 1, plot.bottom - plot.top);
  for (const [v] of yTicks) c.fillRect(plot.left, Math.round(y(v)), plot.right - plot.left, 1);
  for (const [v, words] of xTicks) text(c, words, x(v), plot.bottom + 6, 'center', 'top');
  for (const [v, words] of yTicks) text(c, words, plot.left - 6, y(v), 'right');
}
