import type { Caller } from "./caller";
import { errorOf, NoetlError, unreachable } from "./errors";
import { EventStream } from "./eventstream";
import type { Frame, TransportName } from "./types";

const PROTOCOL = "2024-11-05";
const SUPERSEDED = 4409;
const FORBIDDEN = 4403;

/** Who connects, and what he has read. */
export interface Ask {
  clientId: string;
  lastEventId: string;
}

/** How a connection ended. `isMissing`: this way does not exist here, another one may. */
export interface Ended {
  error: NoetlError;
  isMissing?: boolean;
  isSuperseded?: boolean;
  isForbidden?: boolean;
}

export interface Heard {
  frame(frame: Frame, eventId: string): void;
  /** Something came, a comment perhaps. */
  alive(): void;
  end(ended: Ended): void;
}

/** One connection to the gateway. */
export interface Link {
  /** Leave it; it says nothing more. */
  close(): void;
  /** Leave it, and tell why. */
  end(ended: Ended): void;
  /** Whether this could be said here. */
  say(frame: Frame): boolean;
}

/** The ways that exist here, the best one first. */
export function waysHere(): TransportName[] {
  const ways: TransportName[] = [];
  if (globalThis.WebSocket) ways.push("ws");
  ways.push("sse");
  if (globalThis.EventSource) ways.push("eventsource");
  return ways;
}

export function open(way: TransportName, caller: Caller, ask: Ask, heard: Heard): Link {
  const link = new Held(heard);
  const opening = { ws: socket, sse: stream, eventsource: source }[way](caller, ask, link);
  opening.catch((fault: unknown) =>
    link.end({ error: fault instanceof NoetlError ? fault : unreachable(String(fault)) }),
  );
  return link;
}

/** A link that may be closed before it is open, and ends once. */
class Held implements Link {
  shut: (() => void) | undefined;
  send: ((text: string) => void) | undefined;
  isOver = false;
  #heard: Heard;

  constructor(heard: Heard) {
    this.#heard = heard;
  }

  say(frame: Frame): boolean {
    this.send?.(JSON.stringify(frame));
    return this.send !== undefined;
  }

  close(): void {
    this.isOver = true;
    this.shut?.();
  }

  alive(): void {
    if (!this.isOver) this.#heard.alive();
  }

  take(text: string, eventId = ""): void {
    if (this.isOver) return;
    let frame: Frame;
    try {
      frame = JSON.parse(text) as Frame;
    } catch {
      return this.end({ error: unreachable("the gateway said what is no message") });
    }
    const own = frame.params?.["eventId"];
    this.#heard.frame(frame, eventId || (typeof own === "string" ? own : ""));
  }

  end(ended: Ended): void {
    if (this.isOver) return;
    this.close();
    this.#heard.end(ended);
  }
}

async function socket(caller: Caller, ask: Ask, link: Held): Promise<void> {
  const ticket = await caller.ticket("ws");
  if (link.isOver) return;
  const url = `${caller.baseUrl.replace(/^http/, "ws")}/ws?ticket=${encodeURIComponent(ticket)}`;
  const made = new WebSocket(url, "noetl.v1");
  let isOpen = false;
  link.shut = () => made.close();
  link.send = (text) => made.readyState === WebSocket.OPEN && made.send(text);
  made.onopen = () => {
    isOpen = true;
    const params = {
      protocolVersion: PROTOCOL,
      clientInfo: { name: "noetl-client" },
      capabilities: {},
      ...(ask.clientId && { clientId: ask.clientId }),
      ...(ask.lastEventId && { lastEventId: ask.lastEventId }),
    };
    link.say({ jsonrpc: "2.0", id: 1, method: "initialize", params });
  };
  made.onmessage = (message) => {
    link.alive();
    link.take(String(message.data));
  };
  made.onclose = (event) =>
    link.end({
      error: unreachable(`the connection was closed: ${event.code} ${event.reason}`.trim()),
      isMissing: !isOpen,
      isSuperseded: event.code === SUPERSEDED,
      isForbidden: event.code === FORBIDDEN,
    });
}

/** Server-sent events through `fetch`: a token goes in a header. */
async function stream(caller: Caller, ask: Ask, link: Held): Promise<void> {
  const aborted = new AbortController();
  link.shut = () => aborted.abort();
  const headers: Record<string, string> = { accept: "text/event-stream" };
  if (ask.lastEventId) headers["last-event-id"] = ask.lastEventId;
  const answer = await caller.fetch(address(ask), { headers, signal: aborted.signal });
  if (!answer.ok) {
    const error = await errorOf(answer);
    link.end({ error, isMissing: answer.status === 404, isForbidden: answer.status === 403 });
    return;
  }
  if (!answer.body) {
    link.end({ error: unreachable("answers cannot be read as they come"), isMissing: true });
    return;
  }
  const reader = answer.body.getReader();
  const text = new TextDecoder();
  const events = new EventStream();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      link.alive();
      for (const sent of events.push(text.decode(value, { stream: true }))) {
        link.take(sent.data, sent.id);
      }
    }
  } catch (fault) {
    throw unreachable(`the stream broke: ${(fault as Error).message}`);
  }
  link.end({ error: unreachable("the stream ended") });
}

/** The browser's own reader, with a ticket; reconnecting is ours, for a ticket works once. */
async function source(caller: Caller, ask: Ask, link: Held): Promise<void> {
  const ticket = await caller.ticket("events");
  if (link.isOver) return;
  const made = new EventSource(
    caller.baseUrl + address(ask, { ticket, lastEventId: ask.lastEventId }),
    { withCredentials: true },
  );
  link.shut = () => made.close();
  made.onmessage = (message) => {
    link.alive();
    link.take(String(message.data), message.lastEventId);
  };
  made.onerror = () => link.end({ error: unreachable("the stream ended") });
}

function address(ask: Ask, more: Record<string, string> = {}): string {
  const query = new URLSearchParams({ frames: "message" });
  for (const [name, value] of Object.entries({ client_id: ask.clientId, ...more })) {
    if (value) query.set(name, value);
  }
  return `/events?${query}`;
}
