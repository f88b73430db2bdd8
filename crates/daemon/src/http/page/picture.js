// A picture over the axes as the daemon sends it.

import { Field } from '/canvas.js';

/** Share of the colour that must be lost before a place counts as not known: at half of the prior's deviation 0.75 are known. */
export const UNKNOWN = 0.494;

/** A head in JSON, and the fields behind it. @param {Response} reply @returns {Promise<any>} */
export async function pictureOf(reply) {
  const buffer = await reply.arrayBuffer();
  const length = new DataView(buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const cells = head.columns * head.rows;
  const coarse = head.deviation_columns * head.deviation_rows;
  const numbers = new Float32Array(buffer, 4 + length);
  const deviations = (/** @type {boolean} */ given, /** @type {number} */ from) =>
    given ? new Field(head.deviation_columns, head.deviation_rows, numbers.subarray(from, from + coarse)) : null;
  return {
    ...head,
    value: new Field(head.columns, head.rows, numbers.subarray(0, cells)),
    deviation: deviations(coarse > 0, cells),
    returns: deviations(head.return_deviation, cells + coarse),
    far: head.extrapolates ? new Field(head.known_columns, head.known_rows, Float32Array.from(head.extrapolates, Number)) : null,
    chosen: head.chosen ? new Field(head.columns, head.rows, numbers.subarray(numbers.length - cells)) : null,
  };
}

/**
 * How much of its colour each place loses: nothing where the deviation is small, all where it is the signal's of the prior. Of an earlier
 * model, whose deviations are not kept, all where no element of its dictionary is near; of a provisional one, nothing.
 */
export function fading(/** @type {any} */ { deviation, prior_deviation: prior, far, provisional }) {
  if (provisional || !deviation) return provisional ? null : far;
  const share = deviation.values.map((/** @type {number} */ s) => Math.min(1, Math.max(0, (s / prior - 0.08) / 0.85)));
  return new Field(deviation.columns, deviation.rows, share);
}

/** A field of fewer places than the curve, at the places of the curve. @param {?Field} field @param {number} count @returns {number[]} */
export const along = (field, count) => (field ? Array.from({ length: count }, (_, k) => field.at((k + 0.5) / count, 0)) : []);

/** A picture over one variable: its line, the band about it, how high both reach, and where hardly anything is known. @param {any} picture @param {?Field} fade */
export function curveOf({ value, deviation: of, range }, fade) {
  const mean = Array.from(/** @type {Float32Array} */ (value.values));
  const deviation = along(of, mean.length);
  const heights = mean.flatMap((v, k) => [v - 2 * (deviation[k] ?? 0), v + 2 * (deviation[k] ?? 0)]);
  return { range: range[0], mean, deviation, heights, unknown: along(fade, mean.length).map((share) => share > UNKNOWN) };
}
