const LEAST_MS = 500;
const MOST_MS = 30_000;

/** How long to wait before the n-th try again: anything up to a bound that doubles. */
export function waitMs(attempt: number, random: () => number = Math.random): number {
  return random() * Math.min(MOST_MS, LEAST_MS * 2 ** Math.min(attempt, 16));
}
