// Shapes that several scripts of the page share. The status is in status.d.ts.

/** A picture's rectangle in CSS pixels. */
export interface Plot {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

/** From a number to its pixel. */
export type Scale = (value: number) => number;

/** Places on an axis with their texts. */
export type Ticks = [number, string][];

/** What a picture says of the place under the pointer. */
export interface At {
  /** On the axes, in the units of the variables. */
  place: number[];
  value: number;
  /** Of a curve. */
  deviation?: number;
  /** Shares of the width and of the height, from the left and from below. */
  across: number;
  up: number;
  /** How far a pixel reaches on either axis. */
  reach: number;
  reachUp?: number;
}

/** The answer of /api/path: a number of each place, oldest first. */
export interface Path {
  critic: string;
  stream: string | null;
  rows: number;
  every: number;
  /** Whether the returns that come belong to the values that are shown. */
  returns: boolean;
  last_terminated: number | null;
  /** Before the last row; null where rows are counted. */
  seconds: number[] | null;
  offset: number[];
  at: number[][];
  /** The newest rows one by one: unbroken lines of places. */
  lines: number[][][];
  starts: number[];
  /** 1: terminated, 2: truncated. */
  end: number[];
  reward: number[];
  value: number[];
  deviation: (number | null)[];
  return_deviation: (number | null)[];
  realised: (number | null)[];
  td: number[];
  /** What the page adds: how much was asked for, and the row that is flagged. */
  wanted: string;
  pinned: number | null;
}

/** One of the ten worst states of /api/errors. */
export interface Worst {
  state: number[];
  error: number;
  spread: number;
  td: number;
  count: number;
  stream: string | null;
  offset: number;
  axes: number[];
}

/** An event as the page lists it: its other keys depend on its kind. */
export interface Mark {
  number: number;
  event: string;
  time: number;
  [key: string]: any;
}

/** A line of the time lines, or a part of one. */
export interface Drawn {
  time: number;
  kind: string;
}
