// Marks on pictures: states, directions, places pointed out, and where streams are.

import { inks, text } from '/canvas.js';

/**
 * A stream's newest state: a diamond, hollow for one that is silent. The one whose trajectory is shown is larger, and has its name where
 * there are several. @param {any} c @param {number} x @param {number} y
 * @param {{stream: string, own: boolean, silent: boolean}} robot @param {number} count of all @param {number} right end of the picture
 */
export function diamond(c, x, y, { stream, own, silent }, count, right) {
  const size = own ? 8 : 5.5;
  c.beginPath();
  c.moveTo(x, y - size);
  c.lineTo(x + size, y);
  c.lineTo(x, y + size);
  c.lineTo(x - size, y);
  c.lineTo(x, y - size);
  c.fillStyle = silent ? inks.card : inks.warn;
  c.fill();
  c.strokeStyle = inks.rim;
  c.lineWidth = 4;
  c.stroke();
  c.strokeStyle = inks.ink;
  c.lineWidth = own ? 2 : 1.2;
  c.stroke();
  if (!silent) c.fill();
  if (count < 2 || !own) return;
  const wide = c.measureText(stream).width;
  c.globalAlpha = 0.8;
  c.fillStyle = inks.card;
  // To the left of a mark at the right edge.
  const from = x + size + wide + 9 > right ? x - size - wide - 9 : x + size + 3;
  c.fillRect(from, y - 8, wide + 6, 16);
  c.globalAlpha = 1;
  text(c, stream, from + 3, y, 'left', 'middle', inks.ink);
}

/**
 * @param {CanvasRenderingContext2D} c
 * @param {string} kind
 * @param {number} x
 * @param {number} y
 * @param {number} size
 */
export function marker(c, kind, x, y, size) {
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

/**
 * @param {CanvasRenderingContext2D} c
 * @param {number} x
 * @param {number} y
 * @param {number} angle
 * @param {number} size
 */
export function arrow(c, x, y, angle, size) {
  c.save();
  c.translate(x, y);
  c.rotate(angle);
  c.beginPath();
  c.moveTo(size, 0);
  c.lineTo(-size, -0.75 * size);
  c.lineTo(-size, 0.75 * size);
  c.fill();
  c.restore();
}

/** A ring about a place that is pointed out. */
export function ring(/** @type {CanvasRenderingContext2D} */ c, /** @type {number} */ x, /** @type {number} */ y) {
  for (const [colour, wide] of [
    [inks.rim, 5],
    [inks.warn, 2.4],
  ]) {
    c.strokeStyle = colour;
    c.lineWidth = wide;
    c.beginPath();
    c.arc(x, y, 8, 0, 7);
    c.stroke();
  }
}
