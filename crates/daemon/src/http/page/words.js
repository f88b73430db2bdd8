// Numbers, times and sizes in the words of people, and round places on an axis.

/** A number for people: `digits` significant ones, a true minus, powers of ten only where needed. */
export function format(/** @type {any} */ value, digits = 4) {
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

const superscript = (/** @type {number} */ n) => String(n).replace(/./g, (c) => (c === '-' ? '⁻' : '⁰¹²³⁴⁵⁶⁷⁸⁹'[Number(c)]));

/** A whole number in groups of three. */
export function grouped(/** @type {any} */ value) {
  return String(Math.round(value))
    .replace('-', '−')
    .replace(/\B(?=(\d{3})+(?!\d))/g, '\u202f');
}

/** Seconds for people. */
export function duration(/** @type {number} */ seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}

/** Bytes for people. */
export function bytes(/** @type {any} */ value) {
  if (!Number.isFinite(value)) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB'];
  let k = 0;
  for (; value >= 1024 && k < 3; k += 1) value /= 1024;
  return `${format(value, 3)} ${units[k]}`;
}

/** The step of about `count` ticks over a span: 1, 2 or 5 times a power of ten. */
export function step(/** @type {number} */ span, /** @type {number} */ count) {
  const rough = span / count;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const r = rough / unit;
  return unit * (r < Math.SQRT2 ? 1 : r < Math.sqrt(10) ? 2 : r < Math.sqrt(50) ? 5 : 10);
}

/** Places of about `count` ticks in [low, high], each with its text. @returns {import('./types').Ticks} */
export function ticks(/** @type {number} */ low, /** @type {number} */ high, /** @type {number} */ count) {
  const by = step(high - low, count);
  const decimals = Math.max(0, -Math.floor(Math.log10(by) + 1e-9));
  /** @type {import('./types').Ticks} */
  const out = [];
  for (let k = Math.ceil(low / by - 1e-6); k <= Math.floor(high / by + 1e-6); k += 1) {
    const value = k * by;
    const plain = Math.max(Math.abs(low), Math.abs(high)) < 1e5 && by >= 1e-4;
    out.push([value, plain ? value.toFixed(decimals).replace('-', '−') : value === 0 ? '0' : format(value, 3)]);
  }
  return out;
}

/** The range widened to round numbers. @param {number[]} range @param {number} [count] */
export function round([low, high], count = 5) {
  if (!(low < high)) {
    const half = Math.max(Math.abs(low) * 0.5, 1e-3);
    return [low - half, high + half];
  }
  const by = step(high - low, count);
  return [Math.floor(low / by + 1e-6) * by, Math.ceil(high / by - 1e-6) * by];
}
