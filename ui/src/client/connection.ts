import { waitMs } from "./backoff";
import type { Caller } from "./caller";
import { CODES, NoetlError, unreachable } from "./errors";
import { open, waysHere, type Ask, type Ended, type Link } from "./links";
import type { Frame, Init, State, TransportName } from "./types";

const CONNECT_MS = 10_000;
/** A ping comes every 30 s: when three are missed, nobody is there. */
const SILENT_MS = 90_000;

/** What a connection tells its client. */
export interface Listener {
  ask(): Ask;
  state(state: State): void;
  init(init: Init): void;
  frame(frame: Frame, eventId: string): void;
  /** The id belongs to another tab or to somebody else. */
  loseId(): void;
}

/** Keeps one connection open for ever: the best way there is, tried again whenever it ends. */
export class Connection {
  state: State = "idle";
  #link: Link | undefined;
  #missing = new Set<TransportName>();
  #wake: (() => void) | undefined;
  #waiting = new Set<{ done: () => void; fail: (error: NoetlError) => void }>();
  #caller: Caller;
  #heard: Listener;
  #wanted: "auto" | TransportName;
  #retryMs: number | undefined;
  #run = 0;

  constructor(caller: Caller, wanted: "auto" | TransportName, heard: Listener) {
    this.#caller = caller;
    this.#wanted = wanted;
    this.#heard = heard;
  }

  /** Come back when the gateway has said `init`. */
  opened(): Promise<void> {
    if (this.state === "open") return Promise.resolve();
    if (this.state === "idle" || this.state === "closed") void this.#stay(++this.#run);
    return new Promise((resolve, reject) => {
      const done = () => (clearTimeout(timer), this.#waiting.delete(one), resolve());
      const fail = (error: NoetlError) => (clearTimeout(timer), this.#waiting.delete(one), reject(error));
      const one = { done, fail };
      const late = () => fail(unreachable(`no connection within ${CONNECT_MS / 1000} s`));
      const timer = setTimeout(late, CONNECT_MS);
      this.#waiting.add(one);
    });
  }

  /** Answer on the connection, if it can be done there. */
  say(frame: Frame): boolean {
    return this.#link?.say(frame) ?? false;
  }

  /** End it, and try no more. */
  close(error = unreachable("the client was closed")): void {
    this.#run++;
    this.#link?.end({ error });
    this.#wake?.();
    globalThis.removeEventListener?.("online", this.#onOnline);
    globalThis.removeEventListener?.("offline", this.#onOffline);
    this.#become("closed");
    for (const one of [...this.#waiting]) one.fail(error);
  }

  async #stay(run: number): Promise<void> {
    globalThis.addEventListener?.("online", this.#onOnline);
    globalThis.addEventListener?.("offline", this.#onOffline);
    this.#become("connecting");
    for (let attempt = 0; run === this.#run; attempt++) {
      const wasOpen = await this.#once(run);
      if (run !== this.#run) return;
      if (wasOpen) attempt = 0;
      this.#become("reconnecting");
      const most = this.#retryMs;
      this.#retryMs = undefined;
      await this.#pause(most === undefined ? waitMs(attempt) : Math.random() * most);
    }
  }

  /** One walk over the ways; whether one of them was open. */
  async #once(run: number): Promise<boolean> {
    const ways = this.#wanted === "auto" ? waysHere() : [this.#wanted];
    const tried: TransportName[] = [];
    for (const way of ways) {
      if (this.#missing.has(way)) continue;
      let wasOpen = false;
      const ended = await this.#held(way, () => {
        wasOpen = true;
        tried.forEach((one) => this.#missing.add(one));
      });
      if (run !== this.#run) return false;
      if (ended.isSuperseded || ended.isForbidden) {
        this.#heard.loseId();
        this.#retryMs = 100;
      }
      const retryAfter = (ended.error.data as { retryAfter?: number } | undefined)?.retryAfter;
      if (retryAfter) this.#retryMs = retryAfter * 1000;
      if (wasOpen || !ended.isMissing) return wasOpen;
      tried.push(way);
    }
    return false;
  }

  /** One connection from its begin to its end. */
  #held(way: TransportName, onOpen: () => void): Promise<Ended> {
    return new Promise((resolve) => {
      const ask = this.#heard.ask();
      let isInit = false;
      let isSuperseded = false;
      let timer: ReturnType<typeof setTimeout>;
      const end = (ended: Ended) => {
        clearTimeout(timer);
        if (this.#link === link) this.#link = undefined;
        resolve({ ...ended, isSuperseded: isSuperseded || ended.isSuperseded === true });
      };
      const silent = (ms: number) => {
        clearTimeout(timer);
        const ended = { error: unreachable("the gateway is silent"), isMissing: !isInit };
        timer = setTimeout(() => link.end(ended), ms);
      };
      const frame = (said: Frame, eventId: string) => {
        if (said.method === "connection/superseded") isSuperseded = true;
        if (said.method === "server/draining") this.#retryMs = retryOf(said);
        if (said.error && said.id === 1 && !isInit) {
          link.end({ error: new NoetlError(said.error), isForbidden: said.error.code === CODES.forbidden });
        } else if (isInitOf(said)) {
          if (!isInit) {
            isInit = true;
            onOpen();
            this.#heard.frame(said, "");
            this.#begin(said.result as Init);
          }
        } else {
          this.#heard.frame(said, eventId);
        }
      };
      const link = open(way, this.#caller, ask, { frame, end, alive: () => silent(SILENT_MS) });
      this.#link = link;
      silent(CONNECT_MS);
    });
  }

  #begin(init: Init): void {
    this.#heard.init(init);
    this.#become("open");
    for (const one of [...this.#waiting]) one.done();
  }

  #become(state: State): void {
    if (state === this.state) return;
    this.state = state;
    this.#heard.state(state);
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => this.#wake?.(), ms);
      this.#wake = () => {
        clearTimeout(timer);
        this.#wake = undefined;
        resolve();
      };
    });
  }

  #onOnline = () => this.#wake?.();

  /** A link that the network has left says nothing any more: begin anew at once. */
  #onOffline = () => this.#link?.end({ error: unreachable("the network is gone") });
}

function isInitOf(frame: Frame): boolean {
  return frame.result !== undefined && (frame.result as Partial<Init>).clientId !== undefined;
}

function retryOf(frame: Frame): number {
  const retry = Number(frame.params?.["retry"] ?? frame.params?.["retryMs"]);
  return Number.isFinite(retry) && retry > 0 ? retry : 1000;
}
