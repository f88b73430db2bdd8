// A function of two variables in colour, with what is not known hatched, a trajectory over it, and a spot.

import { Field, Picture, context, cross, inks, maps, mix, text } from '/canvas.js';
import { ticks } from '/words.js';

// Pixels of a heat map's image in each direction; the canvas enlarges it smoothly.
const IMAGE = { width: 210, height: 150 };
/** Share of the colour that must be lost before a place counts as not known. */
const UNKNOWN = 0.55;
/** Pixels between two arrows on a trajectory. */
const ARROWS = 46;

/** A function of two variables in colour. */
export class HeatMap extends Picture {
  /**
   * @param {any} canvas
   * @param {string} colours
   * @param {(at: any) => void} say
   */
  constructor(canvas, colours, say) {
    super(canvas, say);
    this.colours = colours;
    this.image = document.createElement('canvas');
    this.image.width = IMAGE.width;
    this.image.height = IMAGE.height;
    // Where nothing is known, as transparency; and the hatching that it lets through.
    this.veil = document.createElement('canvas');
    this.veil.width = IMAGE.width;
    this.veil.height = IMAGE.height;
    this.hatching = document.createElement('canvas');
    this.stale = true;
    this.surface = '';
    /** A trajectory: lists of places, each an unbroken line. @type {number[][][]} */
    this.path = [];
    /** A place that is pointed out elsewhere. @type {?number[]} */
    this.spot = null;
  }

  /**
   * `next`: field; bar: whether there is a colour bar, unless false; range [[x0, x1], [y0, y1]]; scale [low, high]; names [x, y]; fade (a field of 0 to 1) or null;
   * points [{at: [[x, y]], kind}]; table and ticks: colours and ticks of their own, else null; blocks: whether cells are shown as such; generation; key, which changes where easing would mix what does not belong together.
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
    if (!drawn || !this.next || !this.table()) return;
    const { c, width, height } = drawn;
    const { range, names, points, field } = this.next;
    const easing = this.from && this.progress() < 1;
    const { values, scale } = this.present();
    const shown = new Field(field.columns, field.rows, values);
    if (this.stale || easing || this.surface !== inks.card) this.colour(shown, scale);
    this.stale = Boolean(easing);
    this.surface = inks.card;

    const barTicks = this.next.ticks ?? ticks(scale[0], scale[1], 5);
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
    this.hatch(c, plot);
    if (!this.next.blocks)
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
    this.trajectory(c, x, y);
    if (this.spot) ring(c, x(this.spot[0]), y(this.spot[1]));
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
    if (this.next.bar !== false) this.bar(c, plot, scale, barTicks);
    this.hover(c, plot, shown);
  }

  /** Red, green and blue of 256 colours. */
  table() {
    return this.next.table ?? maps[this.colours];
  }

  /** Colour the image. */
  colour(shown, [low, high]) {
    const { width, height } = IMAGE;
    const { blocks } = this.next;
    const values = shown.enlarge(width, height, blocks);
    const fade = this.next.fade?.enlarge(width, height, blocks);
    const c = context2d(this.image);
    const veil = context2d(this.veil).createImageData(width, height);
    const image = c.createImageData(width, height);
    const table = this.table();
    const [r, g, b] = inks.pale;
    for (let k = 0; k < values.length; k += 1) {
      const share = Math.min(Math.max((values[k] - low) / (high - low), 0), 1);
      const at = 3 * Math.round(share * 255);
      const pale = fade ? Math.min(Math.max(fade[k], 0), 1) : 0;
      image.data[4 * k] = mix(table[at], r, pale);
      image.data[4 * k + 1] = mix(table[at + 1], g, pale);
      image.data[4 * k + 2] = mix(table[at + 2], b, pale);
      image.data[4 * k + 3] = 255;
      veil.data[4 * k + 3] = 255 * Math.min(Math.max((pale - UNKNOWN) / 0.1, 0), 1);
    }
    c.putImageData(image, 0, 0);
    context2d(this.veil).putImageData(veil, 0, 0);
  }

  /** Lines over what is not known, alike in every theme and for every eye. */
  hatch(c, plot) {
    if (!this.next.fade) return;
    const [width, height] = [Math.ceil(plot.right - plot.left), Math.ceil(plot.bottom - plot.top)];
    if (width < 1 || height < 1) return;
    this.hatching.width = width;
    this.hatching.height = height;
    const h = context2d(this.hatching);
    h.strokeStyle = inks.soft;
    h.lineWidth = 1;
    h.globalAlpha = 0.55;
    h.beginPath();
    for (let k = -height; k < width; k += 7) {
      h.moveTo(k, height);
      h.lineTo(k + height, 0);
    }
    h.stroke();
    h.globalAlpha = 1;
    h.globalCompositeOperation = 'destination-in';
    h.imageSmoothingEnabled = !this.next.blocks;
    h.drawImage(this.veil, 0, 0, width, height);
    c.drawImage(this.hatching, plot.left, plot.top);
  }

  /** The trajectory with arrows in its direction. */
  trajectory(c, x, y) {
    for (const [colour, wide] of [
      [inks.rim, 2.6],
      [inks.ink, 1.1],
    ]) {
      c.strokeStyle = colour;
      c.fillStyle = colour;
      c.lineWidth = wide;
      for (const line of this.path) {
        c.beginPath();
        for (const [px, py] of line) c.lineTo(x(px), y(py));
        c.stroke();
        let since = ARROWS / 2;
        for (let k = 1; k < line.length; k += 1) {
          const [x0, y0, x1, y1] = [x(line[k - 1][0]), y(line[k - 1][1]), x(line[k][0]), y(line[k][1])];
          since += Math.hypot(x1 - x0, y1 - y0);
          if (since < ARROWS) continue;
          since = 0;
          arrow(c, x1, y1, Math.atan2(y1 - y0, x1 - x0), wide > 2 ? 6 : 4.5);
        }
      }
    }
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
          if (fade && fade.at((i + 1) / columns, (j + 1) / rows) > UNKNOWN) continue;
          /** @type {number[][]} */
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
    const table = this.table();
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

  /** A cross at the pointer, and what is there. */
  hover(c, plot, shown) {
    const { range } = this.next;
    if (!this.pointer) return this.say(null);
    const across = (this.pointer[0] - plot.left) / (plot.right - plot.left);
    const up = (plot.bottom - this.pointer[1]) / (plot.bottom - plot.top);
    if (across < 0 || across > 1 || up < 0 || up > 1) return this.say(null);
    cross(c, plot, this.pointer);
    const place = [mix(range[0][0], range[0][1], across), mix(range[1][0], range[1][1], up)];
    const value = this.next.blocks ? shown.cell(across, up) : shown.at(across, up);
    // How far a pixel reaches on either axis.
    const reach = (range[0][1] - range[0][0]) / (plot.right - plot.left);
    const reachUp = (range[1][1] - range[1][0]) / (plot.bottom - plot.top);
    return this.say({ place, value, across, up, reach, reachUp });
  }
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

/** @param {HTMLCanvasElement} canvas @returns {CanvasRenderingContext2D} */
const context2d = (canvas) => /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));

function arrow(c, x, y, angle, size) {
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
function ring(c, x, y) {
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
