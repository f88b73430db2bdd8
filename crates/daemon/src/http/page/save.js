// Files of the page: pictures as PNG and SVG, numbers as CSV.

import { context, inks, paintOn, text } from '/canvas.js';
import { el } from '/dom.js';
import { Svg } from '/svg.js';

/** Pixels of a line of a title, and around it; those that a letter takes about. */
const LINE = 16;
const MARGIN = 10;
const LETTER = 6.5;
/** Pixels between two rows of a list, and of the bar beneath one. */
const GAP = 4;
const BAR = 8;
/** Pixels of a PNG for each of the page. */
const SHARP = 2;

/**
 * A picture of the page: its canvas, a function that paints it at once, and the lines above it; `height` where it is not the canvas's.
 * @typedef {{canvas: any, paint: () => void, title: string[], height?: number}} Part
 */

/** Words as lines of `width` pixels. @param {string} words @param {number} width @returns {string[]} */
export function wrapped(words, width) {
  /** @type {string[]} */
  const lines = [];
  for (const word of words.split(' ')) {
    const longer = `${lines.at(-1) ?? ''} ${word}`.trim();
    if (lines.length && longer.length * LETTER <= width) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

function download(/** @type {string} */ name, /** @type {Blob} */ blob) {
  const link = el('a', { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** Where the parts lie in a file: as on the page, each below its title. @param {Part[]} parts */
function laidOut(parts) {
  const boxes = parts.map(({ canvas }) => canvas.getBoundingClientRect());
  const [left, top] = [Math.min(...boxes.map((box) => box.left)), Math.min(...boxes.map((box) => box.top))];
  const tops = [...new Set(boxes.map((box) => Math.round(box.top)))].sort((a, b) => a - b);
  const tall = LINE * Math.max(...parts.map(({ title }) => title.length)) + MARGIN;
  const places = boxes.map((box) => ({
    x: box.left - left + MARGIN,
    y: box.top - top + tall * (tops.indexOf(Math.round(box.top)) + 1) + MARGIN,
  }));
  const width = Math.max(...places.map(({ x }, k) => x + boxes[k].width)) + MARGIN;
  const height = Math.max(...places.map(({ y }, k) => y + (parts[k].height ?? boxes[k].height))) + MARGIN;
  return { places, width: Math.ceil(width), height: Math.ceil(height), tall };
}

/** Paint the parts with their titles. @param {any} c @param {Part[]} parts @param {ReturnType<typeof laidOut>} layout */
function painted(c, parts, { places, tall }) {
  parts.forEach(({ canvas, paint, title }, k) => {
    const { x, y } = places[k];
    c.save();
    c.translate(x, y);
    title.forEach((words, line) => {
      c.font = `${line === 0 ? 'bold ' : ''}12px system-ui, sans-serif`;
      c.fillStyle = line === 0 ? inks.ink : inks.soft;
      [c.textAlign, c.textBaseline] = ['left', 'top'];
      c.fillText(words, 4, LINE * line - tall + MARGIN / 2);
    });
    c.font = '12px system-ui, sans-serif';
    paintOn(canvas, c, paint);
    c.restore();
  });
}

function saveSvg(/** @type {string} */ name, /** @type {Part[]} */ parts) {
  const layout = laidOut(parts);
  const svg = new Svg();
  painted(svg, parts, layout);
  download(`${name}.svg`, new Blob([svg.file(layout.width, layout.height, inks.card)], { type: 'image/svg+xml' }));
}

function savePng(/** @type {string} */ name, /** @type {Part[]} */ parts) {
  const layout = laidOut(parts);
  const copy = document.createElement('canvas');
  [copy.width, copy.height] = [SHARP * layout.width, SHARP * layout.height];
  const c = /** @type {CanvasRenderingContext2D} */ (copy.getContext('2d'));
  c.scale(SHARP, SHARP);
  c.lineJoin = 'round';
  c.fillStyle = inks.card;
  c.fillRect(0, 0, layout.width, layout.height);
  painted(c, parts, layout);
  copy.toBlob((blob) => blob && download(`${name}.png`, blob));
}

/** A field of a table: quoted where a comma or a quote would break it. A spreadsheet takes a name such as "=a" for a formula. */
function cell(/** @type {any} */ value) {
  const formula = typeof value === 'string' && /^[=+\-@]/.test(value) && Number.isNaN(Number(value));
  const text = `${formula ? "'" : ''}${value ?? ''}`;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function saveCsv(/** @type {string} */ name, /** @type {Record<string, any>} */ lists) {
  const names = Object.keys(lists);
  const rows = Array.from({ length: lists[names[0]].length }, (_, k) => names.map((each) => cell(lists[each][k])).join());
  download(`${name}.csv`, new Blob([`${[names.map(cell).join(), ...rows].join('\n')}\n`], { type: 'text/csv' }));
}

/**
 * A list of the page as a part of a picture: the words of its rows, and a bar beneath each that has a share. A file has no scroll bar, so that
 * the part is as high as the rows are.
 * @param {any} box the list @param {string} title @param {() => {words: string[], share?: number}[]} rows
 * @returns {Part}
 */
export function listPart(box, title, rows) {
  const shown = rows().map(({ words, share }) => ({ lines: words.map((each) => wrapped(each, box.clientWidth - 8)), share }));
  const high = (/** @type {typeof shown[number]} */ { lines, share }) => LINE * (lines.flat().length + (share === undefined ? 0 : 1)) + GAP;
  const paint = () => {
    const drawn = context(box);
    if (!drawn) return;
    const { c, width } = drawn;
    let top = LINE / 2;
    for (const row of shown) {
      let y = top + LINE / 2;
      row.lines.forEach((lines, k) => {
        for (const line of lines) {
          text(c, line, 4, y, 'left', 'middle', k === 0 ? inks.ink : inks.soft);
          y += LINE;
        }
      });
      if (row.share !== undefined) {
        c.fillStyle = inks.grid;
        c.fillRect(4, y - GAP, width - 8, BAR);
        c.fillStyle = inks.accent;
        c.fillRect(4, y - GAP, (width - 8) * Math.min(row.share, 1), BAR);
      }
      top += high(row);
    }
  };
  return { canvas: box, paint, title: [title], height: shown.reduce((sum, row) => sum + high(row), LINE) };
}

/**
 * Buttons that save the shown pictures and numbers.
 * @param {any} box where they go
 * @param {string} name of the files
 * @param {?() => Part[]} parts pictures that are shown now
 * @param {?() => ?Record<string, any>} columns lists of one length by name; null before there is any
 */
export function saveButtons(box, name, parts, columns) {
  const button = (/** @type {string} */ kind, /** @type {() => void} */ save) => {
    const made = el('button', { type: 'button', className: 'save', textContent: kind, 'aria-label': `Save ${name} as ${kind}` });
    made.addEventListener('click', save);
    box.append(made);
  };
  const shown = () => (parts ? parts().filter(({ canvas }) => canvas.offsetHeight > 0) : []);
  if (parts) {
    button('PNG', () => shown().length && savePng(name, shown()));
    button('SVG', () => shown().length && saveSvg(name, shown()));
  }
  if (columns) {
    button('CSV', () => {
      const lists = columns();
      if (lists) saveCsv(name, lists);
    });
  }
}
