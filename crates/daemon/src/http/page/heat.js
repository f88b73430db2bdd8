// A function of two variables in colour, with what is not known hatched, a trajectory over it, and a spot.

import { Field, Picture, context, cross, inks, maps, mix, text, upright } from '/canvas.js';
import { UNKNOWN } from '/picture.js';
import { arrow, diamond, marker, ring } from '/shapes.js';
import { ticks } from '/words.js';

// Pixels of a heat map's image in each direction; the canvas enlarges it smoothly.
const IMAGE = { width: 210, height: 150 };
/** Pixels that a mouse is dragged at least, across and up, to mark a part of the axes. */
const DRAGGED = 12;
/** Pixels between two arrows on a trajectory, at least; and arrows on all of it, at most. */
const ARROWS = 46;
const ARROWS_MAX = 24;
/** Pixels of a trajectory above which it is drawn paler, so that the map stays visible. */
const CLEAR = 2500;

/** A function of two variables in colour. */
export class HeatMap extends Picture {
  /**
   * @param {any} canvas
   * @param {string} colours
   * @param {(at: any) => void} say
   * @param {?(part: number[][]) => void} [zoom] called with the part of the axes that a mouse is dragged over
   */
  constructor(canvas, colours, say, zoom = null) {
    super(canvas, say);
    if (zoom) this.draggable(zoom);
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
    /** Where a mouse was pressed, in pixels. @type {?number[]} */
    this.pressed = null;
    /** Where the picture lies. @type {?import('./types').Plot} */
    this.plot = null;
    /** A trajectory: lists of places, each an unbroken line. @type {number[][][]} */
    this.path = [];
    /** A place that is pointed out elsewhere. @type {?number[]} */
    this.spot = null;
    /** The place of the pointer on another picture over the same axes. @type {?number[]} */
    this.linked = null;
    /** A predicted course. @type {number[][]} */
    this.ahead = [];
    /** Where each stream is now. @type {import('/value.js').Marker[]} */
    this.robots = [];
  }

  /**
   * `next`: field; bar: whether there is a colour bar, unless false; range [[x0, x1], [y0, y1]]; scale [low, high]; names [x, y]; unit: the numbers' unit, or none; fade (a field of 0 to 1) or null;
   * points [{at: [[x, y]], kind}]; table and ticks: colours and ticks of their own, else null; blocks: whether cells are shown as such; generation; key, which changes where easing would mix what does not belong together.
   */
  show(/** @type {any} */ next) {
    const before = this.next;
    const same = before && before.key === next.key && before.field.values.length === next.field.values.length;
    const moved = same && (before.generation !== next.generation || before.scale.some((/** @type {number} */ v, /** @type {number} */ k) => v !== next.scale[k]));
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
    const values = field.values.map((/** @type {number} */ v, /** @type {number} */ k) => mix(this.from.values[k], v, t));
    return { values, scale: scale.map((/** @type {number} */ v, /** @type {number} */ k) => mix(this.from.scale[k], v, t)) };
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
    const widest = (/** @type {import('./types').Ticks} */ list) => Math.max(...list.map((/** @type {[number, string]} */ [, words]) => c.measureText(words).width), 10);
    const { unit } = this.next;
    const plot = {
      left: widest(yTicks) + 30,
      // The unit stands above the colour bar.
      top: unit ? 20 : 6,
      right: width - widest(barTicks) - 38,
      bottom: height - 38,
    };
    this.plot = plot;
    const x = (/** @type {number} */ v) => plot.left + ((v - range[0][0]) / (range[0][1] - range[0][0])) * (plot.right - plot.left);
    const y = (/** @type {number} */ v) => plot.bottom - ((v - range[1][0]) / (range[1][1] - range[1][0])) * (plot.bottom - plot.top);
    c.imageSmoothingEnabled = true;
    c.imageSmoothingQuality = 'high';
    c.drawImage(this.image, plot.left, plot.top, plot.right - plot.left, plot.bottom - plot.top);
    this.hatch(c, plot);
    if (!this.next.blocks)
      this.contours(c, shown, barTicks, plot);
    c.save();
    c.beginPath();
    c.rect(plot.left, plot.top, plot.right - plot.left, plot.bottom - plot.top);
    c.clip();
    const size = Math.min(1, Math.max(0.7, (plot.right - plot.left) / 480));
    for (const { at, kind } of points) at.forEach((/** @type {number[]} */ [px, py]) => marker(c, kind, x(px), y(py), size));
    this.trajectory(c, x, y);
    this.foreseen(c, x, y);
    // The one whose trajectory is shown lies above the others.
    for (const robot of [...this.robots].sort((a, b) => Number(a.own) - Number(b.own)))
      diamond(c, x(robot.at[0]), y(robot.at[1]), robot, this.robots.length, plot.right);
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
    upright(c, names[1], (plot.top + plot.bottom) / 2);
    if (this.next.bar !== false) {
      this.bar(c, plot, scale, barTicks);
      if (unit) text(c, `[${unit}]`, width - 4, plot.top - 5, 'right', 'bottom', inks.ink);
    }
    if (this.linked && !this.pointer) cross(c, plot, [x(this.linked[0]), y(this.linked[1])]);
    this.hover(c, plot, shown);
  }

  /** Let a mouse drag over a part of the axes, and keys zoom about the pointer. @param {(part: number[][]) => void} zoom */
  draggable(zoom) {
    this.canvas.addEventListener('pointerdown', (/** @type {PointerEvent} */ e) => {
      this.pressed = e.pointerType === 'mouse' ? [e.offsetX, e.offsetY] : null;
    });
    this.canvas.addEventListener('pointerleave', () => {
      this.pressed = null;
    });
    this.canvas.addEventListener('pointerup', (/** @type {PointerEvent} */ e) => {
      const from = this.pressed;
      this.pressed = null;
      if (!from || Math.abs(e.offsetX - from[0]) < DRAGGED || Math.abs(e.offsetY - from[1]) < DRAGGED) return;
      const [a, b] = [this.placeOf(from), this.placeOf([e.offsetX, e.offsetY])];
      zoom(a.map((v, j) => [Math.min(v, b[j]), Math.max(v, b[j])]));
    });
    this.canvas.addEventListener('keydown', (/** @type {KeyboardEvent} */ e) => {
      if (e.key !== '+' || !this.pointer || !this.next) return;
      const place = this.placeOf(this.pointer);
      zoom(this.next.range.map((/** @type {number[]} */ [low, high], /** @type {number} */ j) => [place[j] - (high - low) / 4, place[j] + (high - low) / 4]));
    });
  }

  /** The place on the axes at some pixels, within the picture. @param {number[]} pixels @returns {number[]} */
  placeOf([x, y]) {
    const plot = /** @type {import('./types').Plot} */ (this.plot);
    const share = (/** @type {number} */ v) => Math.min(Math.max(v, 0), 1);
    const shares = [share((x - plot.left) / (plot.right - plot.left)), share((plot.bottom - y) / (plot.bottom - plot.top))];
    return this.next.range.map((/** @type {number[]} */ [low, high], /** @type {number} */ j) => mix(low, high, shares[j]));
  }

  /** Red, green and blue of 256 colours. */
  table() {
    return this.next.table ?? maps[this.colours];
  }

  /** Colour the image. */
  colour(/** @type {Field} */ shown, /** @type {number[]} */ [low, high]) {
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
  hatch(/** @type {CanvasRenderingContext2D} */ c, /** @type {import('./types').Plot} */ plot) {
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

  /**
   * The trajectory with arrows in its direction.
   * @param {CanvasRenderingContext2D} c
   * @param {import('./types').Scale} x
   * @param {import('./types').Scale} y
   */
  trajectory(c, x, y) {
    let length = 0;
    for (const line of this.path) {
      for (let k = 1; k < line.length; k += 1) {
        length += Math.hypot(x(line[k][0]) - x(line[k - 1][0]), y(line[k][1]) - y(line[k - 1][1]));
      }
    }
    const apart = Math.max(ARROWS, length / ARROWS_MAX);
    c.save();
    c.globalAlpha = Math.min(1, Math.max(0.4, CLEAR / length));
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
        let since = apart / 2;
        for (let k = 1; k < line.length; k += 1) {
          const [x0, y0, x1, y1] = [x(line[k - 1][0]), y(line[k - 1][1]), x(line[k][0]), y(line[k][1])];
          since += Math.hypot(x1 - x0, y1 - y0);
          if (since < apart) continue;
          since = 0;
          arrow(c, x1, y1, Math.atan2(y1 - y0, x1 - x0), wide > 2 ? 6 : 4.5);
        }
      }
    }
    c.restore();
  }

  /**
   * The predicted course: dashed, with a ring where it begins.
   * @param {CanvasRenderingContext2D} c
   * @param {import('./types').Scale} x
   * @param {import('./types').Scale} y
   */
  foreseen(c, x, y) {
    if (!this.ahead.length) return;
    c.beginPath();
    for (const [px, py] of this.ahead) c.lineTo(x(px), y(py));
    c.strokeStyle = inks.rim;
    c.lineWidth = 4;
    c.stroke();
    c.strokeStyle = inks.second;
    c.lineWidth = 2.2;
    c.setLineDash([6, 3]);
    c.stroke();
    c.setLineDash([]);
    ring(c, x(this.ahead[0][0]), y(this.ahead[0][1]));
  }

  /**
   * The numbers of lines, those that stand clear of each other and of the edges.
   * @param {CanvasRenderingContext2D} c
   * @param {{x: number, y: number, words: string}[]} labels
   * @param {import('./types').Plot} plot
   */
  levels(c, labels, plot) {
    /** @type {number[][]} */
    const taken = [];
    for (const { x, y, words } of labels) {
      const inside = x > plot.left + 16 && x < plot.right - 16 && y > plot.top + 10 && y < plot.bottom - 10;
      if (!inside || taken.some(([tx, ty]) => Math.abs(tx - x) < 34 && Math.abs(ty - y) < 15)) continue;
      taken.push([x, y]);
      const wide = c.measureText(words).width;
      c.fillStyle = 'rgba(0, 0, 0, 0.45)';
      c.fillRect(x - wide / 2 - 2, y - 7, wide + 4, 14);
      text(c, words, x, y, 'center', 'middle', 'rgba(255, 255, 255, 0.92)');
    }
  }

  /**
   * Lines of equal value with their numbers, where it is known.
   * @param {CanvasRenderingContext2D} c
   * @param {Field} shown
   * @param {import('./types').Ticks} levels
   * @param {import('./types').Plot} plot
   */
  contours(c, shown, levels, plot) {
    const { columns, rows, values } = shown;
    const { fade } = this.next;
    /** @type {Map<number, {x: number, y: number, words: string, away: number}>} */
    const labels = new Map();
    const px = (/** @type {number} */ i) => plot.left + ((i + 0.5) / columns) * (plot.right - plot.left);
    const py = (/** @type {number} */ j) => plot.bottom - ((j + 0.5) / rows) * (plot.bottom - plot.top);
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
        for (const [level, words] of levels) {
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
            const away = Math.abs(i / columns - 0.35) + Math.abs(j / rows - 0.5);
            const label = labels.get(level);
            if (!label || away < label.away) labels.set(level, { x: px(ends[k][0]), y: py(ends[k][1]), words, away });
          }
        }
      }
    }
    c.strokeStyle = 'rgba(255, 255, 255, 0.38)';
    c.lineWidth = 0.9;
    c.stroke();
    this.levels(c, [...labels.values()], plot);
  }

  /**
   * The colour bar.
   * @param {CanvasRenderingContext2D} c
   * @param {import('./types').Plot} plot
   * @param {number[]} range
   * @param {import('./types').Ticks} barTicks
   */
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

  /**
   * A cross at the pointer, and what is there.
   * @param {CanvasRenderingContext2D} c
   * @param {import('./types').Plot} plot
   * @param {Field} shown
   */
  hover(c, plot, shown) {
    const { range } = this.next;
    if (!this.pointer) return this.say(null);
    const across = (this.pointer[0] - plot.left) / (plot.right - plot.left);
    const up = (plot.bottom - this.pointer[1]) / (plot.bottom - plot.top);
    if (across < 0 || across > 1 || up < 0 || up > 1) return this.say(null);
    cross(c, plot, this.pointer);
    if (this.pressed) {
      c.strokeStyle = inks.ink;
      c.lineWidth = 1.5;
      c.strokeRect(this.pressed[0], this.pressed[1], this.pointer[0] - this.pressed[0], this.pointer[1] - this.pressed[1]);
    }
    const place = [mix(range[0][0], range[0][1], across), mix(range[1][0], range[1][1], up)];
    const value = this.next.blocks ? shown.cell(across, up) : shown.at(across, up);
    // How far a pixel reaches on either axis.
    const reach = (range[0][1] - range[0][0]) / (plot.right - plot.left);
    const reachUp = (range[1][1] - range[1][0]) / (plot.bottom - plot.top);
    return this.say({ place, value, across, up, reach, reachUp });
  }
}

/** @param {HTMLCanvasElement} canvas @returns {CanvasRenderingContext2D} */
const context2d = (canvas) => /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
