import type { Progress, Result } from "./types";

const MOST_EARLY = 200;
const MOST_ENDED = 1000;

/** Whoever waits for a request. */
export interface Waiter {
  ended(result: Result): void;
  progressed?: ((progress: Progress) => void) | undefined;
}

interface Early {
  progress?: Progress;
  result?: Result;
}

/**
 * Which requests are waited for, and what was heard of them.
 *
 * A result may come before the answer that names its request: it is kept until somebody asks.
 * It may come twice, from the stream and from a look: it is told once.
 */
export class Book {
  #waiting = new Map<string, Waiter>();
  #early = new Map<string, Early>();
  #ended = new Set<string>();
  #epoch = "";
  #seq = -1;

  /** The requests that have no result yet. */
  get waiting(): string[] {
    return [...this.#waiting.keys()];
  }

  /** How far the stream was read. */
  get lastEventId(): string {
    return this.#seq < 0 ? "" : `${this.#epoch}-${this.#seq}`;
  }

  /** Go on where an earlier page stopped; nothing means from the start. */
  readFrom(eventId: string): void {
    this.#seq = -1;
    if (eventId) this.isNew(eventId);
  }

  /** Whether an event was not seen before; it is from now on. Ids rise within an epoch. */
  isNew(eventId: string): boolean {
    const at = eventId.lastIndexOf("-");
    const epoch = eventId.slice(0, at);
    const seq = Number(eventId.slice(at + 1));
    if (at < 1 || !Number.isSafeInteger(seq) || seq < 0) return true;
    if (epoch === this.#epoch && seq <= this.#seq) return false;
    this.#epoch = epoch;
    this.#seq = seq;
    return true;
  }

  /** Wait for a request; what is known of it already is told at once. */
  expect(requestId: string, waiter: Waiter): void {
    const early = this.#early.get(requestId);
    this.#early.delete(requestId);
    if (early?.progress) waiter.progressed?.(early.progress);
    if (early?.result) waiter.ended(early.result);
    else this.#waiting.set(requestId, waiter);
  }

  /** Nobody waits any more. */
  forget(requestId: string): void {
    this.#waiting.delete(requestId);
  }

  progress(progress: Progress): void {
    const waiter = this.#waiting.get(progress.requestId);
    if (waiter) waiter.progressed?.(progress);
    else if (!this.#ended.has(progress.requestId)) this.#keep(progress.requestId, { progress });
  }

  /** Tell a result; false when it was told before. */
  result(result: Result): boolean {
    const id = result.requestId;
    if (this.#ended.has(id)) return false;
    this.#ended.add(id);
    drop(this.#ended, MOST_ENDED);
    const waiter = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (waiter) waiter.ended(result);
    else this.#keep(id, { ...this.#early.get(id), result });
    return true;
  }

  #keep(requestId: string, early: Early): void {
    this.#early.delete(requestId);
    this.#early.set(requestId, early);
    drop(this.#early, MOST_EARLY);
  }
}

/** The oldest goes when there are too many. */
function drop(kept: Map<string, unknown> | Set<string>, most: number): void {
  if (kept.size > most) kept.delete(kept.keys().next().value as string);
}
