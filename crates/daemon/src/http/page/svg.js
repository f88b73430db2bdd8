// A drawing context that writes SVG: the code that paints a canvas also paints a file.

/** Pixels of a line of text. */
const SIZE = 12;
const FONT = `${SIZE}px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif`;
/** How far below its place the baseline of a text lies. @type {Record<string, number>} */
const BASELINES = { middle: 0.35 * SIZE, top: 0.8 * SIZE, bottom: -0.22 * SIZE, alphabetic: 0 };
/** @type {Record<string, string>} */
const ANCHORS = { left: 'start', center: 'middle', right: 'end' };

const measure = /** @type {CanvasRenderingContext2D} */ (document.createElement('canvas').getContext('2d'));
measure.font = FONT;

const escape = (/** @type {string} */ text) =>
  // XML has no control characters.
  text.replace(/[\x00-\x08\x0b\x0c\x0e-\x1f]/g, '\ufffd').replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
const short = (/** @type {number} */ v) => String(Math.round(100 * v) / 100);

/** The part of CanvasRenderingContext2D that the page uses. Colours and widths are set as properties. */
export class Svg {
  fillStyle = '#000';
  strokeStyle = '#000';
  lineWidth = 1;
  globalAlpha = 1;
  textAlign = 'left';
  textBaseline = 'alphabetic';
  font = FONT;
  lineJoin = 'round';
  imageSmoothingEnabled = true;
  imageSmoothingQuality = 'high';

  constructor() {
    /** @type {string[]} */
    this.parts = [];
    this.path = '';
    this.transform = '';
    this.clipped = '';
    /** @type {number[]} */
    this.dash = [];
    /** @type {any[]} */
    this.saved = [];
    this.clips = 0;
  }

  /** The file. @param {number} width @param {number} height @param {string} ground colour behind everything */
  file(width, height, ground) {
    return (
      `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">` +
      `<rect width="100%" height="100%" fill="${ground}"/>${this.parts.join('')}</svg>\n`
    );
  }

  /** @param {string} element @param {string} [content] */
  add(element, content = '') {
    const moved = this.transform ? ` transform="${this.transform.trim()}"` : '';
    const inner = `<${element}${moved}${content ? `>${content}</${element.split(' ')[0]}>` : '/>'}`;
    this.parts.push(this.clipped ? `<g clip-path="url(#${this.clipped})">${inner}</g>` : inner);
  }

  faded() {
    return this.globalAlpha < 1 ? ` opacity="${short(this.globalAlpha)}"` : '';
  }

  stroked() {
    const dash = this.dash.length ? ` stroke-dasharray="${this.dash.join(' ')}"` : '';
    return ` fill="none" stroke="${this.strokeStyle}" stroke-width="${short(this.lineWidth)}" stroke-linejoin="round"${dash}${this.faded()}`;
  }

  save() {
    const { fillStyle, strokeStyle, lineWidth, globalAlpha, transform, clipped, dash } = this;
    this.saved.push({ fillStyle, strokeStyle, lineWidth, globalAlpha, transform, clipped, dash });
  }

  restore() {
    Object.assign(this, this.saved.pop());
  }

  translate(/** @type {number} */ x, /** @type {number} */ y) {
    this.transform += ` translate(${short(x)} ${short(y)})`;
  }

  rotate(/** @type {number} */ angle) {
    this.transform += ` rotate(${short((180 * angle) / Math.PI)})`;
  }

  setLineDash(/** @type {number[]} */ dash) {
    this.dash = dash;
  }

  beginPath() {
    this.path = '';
  }

  moveTo(/** @type {number} */ x, /** @type {number} */ y) {
    this.path += `M${short(x)} ${short(y)}`;
  }

  lineTo(/** @type {number} */ x, /** @type {number} */ y) {
    this.path += `${this.path ? 'L' : 'M'}${short(x)} ${short(y)}`;
  }

  rect(/** @type {number} */ x, /** @type {number} */ y, /** @type {number} */ width, /** @type {number} */ height) {
    this.path += `M${short(x)} ${short(y)}h${short(width)}v${short(height)}h${short(-width)}z`;
  }

  /** A whole circle: the page draws no other arcs. */
  arc(/** @type {number} */ x, /** @type {number} */ y, /** @type {number} */ radius) {
    const r = short(radius);
    this.path += `M${short(x - radius)} ${short(y)}a${r} ${r} 0 1 0 ${short(2 * radius)} 0a${r} ${r} 0 1 0 ${short(-2 * radius)} 0z`;
  }

  clip() {
    this.clips += 1;
    const name = `clip${this.clips}`;
    const moved = this.transform ? ` transform="${this.transform.trim()}"` : '';
    this.parts.push(`<clipPath id="${name}"><path d="${this.path}"${moved}/></clipPath>`);
    this.clipped = name;
  }

  fill() {
    this.add(`path d="${this.path}" fill="${this.fillStyle}"${this.faded()}`);
  }

  stroke() {
    this.add(`path d="${this.path}"${this.stroked()}`);
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
   */
  fillRect(x, y, width, height) {
    this.add(
      `rect x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${short(height)}" fill="${this.fillStyle}"${this.faded()}`,
    );
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
   */
  strokeRect(x, y, width, height) {
    this.add(`rect x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${short(height)}"${this.stroked()}`);
  }

  measureText(/** @type {string} */ words) {
    measure.font = this.font;
    return measure.measureText(words);
  }

  fillText(/** @type {string} */ words, /** @type {number} */ x, /** @type {number} */ y) {
    const place = `x="${short(x)}" y="${short(y + BASELINES[this.textBaseline])}"`;
    const weight = this.font.startsWith('bold') ? ' font-weight="bold"' : '';
    this.add(
      `text ${place} text-anchor="${ANCHORS[this.textAlign]}" fill="${this.fillStyle}" font-size="${SIZE}" font-family="system-ui, sans-serif"${weight}${this.faded()}`,
      escape(words),
    );
  }

  /** @param {HTMLCanvasElement} image @param {number} x @param {number} y */
  drawImage(image, x, y, width = image.width, height = image.height) {
    if (!image.width || !image.height) return;
    const smooth = this.imageSmoothingEnabled ? '' : ' image-rendering="pixelated"';
    this.add(
      `image x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${short(height)}" preserveAspectRatio="none"${smooth} href="${image.toDataURL()}"`,
    );
  }
}
