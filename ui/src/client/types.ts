/** What travels between a page and the gateway, and what a page is told. Ids are always strings. */

export type State = "idle" | "connecting" | "open" | "reconnecting" | "closed";
export type TransportName = "ws" | "sse" | "eventsource";
export type Channel = "state" | "events" | "logs";
export type Variables = Record<string, unknown>;

/** A request whose result has not come yet. */
export interface Pending {
  requestId: string;
  executionId: string;
  playbookPath: string;
  deadline: string;
}

/** What the gateway says first on every connection. */
export interface Init {
  protocolVersion: string;
  serverInfo: { name: string; version: string };
  clientId: string;
  sessionExpiresAt: string | null;
  epoch: string;
  capabilities: Record<string, boolean>;
  recovery: { requested: boolean; recovered: boolean; from: string | null };
  pendingRequests: Pending[];
}

/** A value that is too large for a stream. */
export interface DataRef {
  ref: string;
  bytes: number;
  sha256: string;
}

/** Why there is no value. */
export interface Failure {
  code: number;
  message: string;
  data?: unknown;
}

/** The one end of a request. */
export interface Result {
  requestId: string;
  executionId: string;
  status: string;
  data?: unknown;
  dataRef?: DataRef | null;
  error?: Failure | null;
}

/** How far a request is. */
export interface Progress {
  requestId: string;
  executionId: string;
  step?: string | null;
  message?: string | null;
  progress?: number | null;
}

/** A step or an execution changed. */
export interface StateChange {
  requestId?: string;
  executionId: string;
  eventType: string;
  stepName?: string | null;
  status?: string | null;
  at?: string;
  seq?: number;
}

/** What is known of a request. */
export interface RequestDocument {
  requestId: string;
  executionId: string;
  playbookPath: string;
  state: "accepted" | "running" | "completed" | "failed" | "cancelled" | "timeout" | "rejected";
  createdAt: string;
  deadline: string;
  result?: unknown;
  error?: Failure | null;
  resultRef?: DataRef | null;
  lateResult?: unknown;
}

/** Who is signed in. */
export interface User {
  user_id: string;
  email: string | null;
  display_name: string | null;
  roles: string[];
}

/** What a watched execution says. */
export interface Told {
  channel: Channel;
  executionId: string;
  params: Record<string, unknown>;
}

/** One JSON-RPC message, as it came. */
export interface Frame {
  jsonrpc: "2.0";
  id?: string | number | null;
  method?: string;
  params?: Record<string, unknown>;
  result?: unknown;
  error?: Failure;
}

/** What can be listened to with `on`. */
export interface Events {
  state: State;
  init: Init;
  frame: Frame;
  unauthorized: undefined;
  "playbook/result": Result;
  "playbook/progress": Progress;
  "playbook/state": StateChange;
  "playbook/event": Record<string, unknown>;
  "playbook/log": Record<string, unknown>;
  "session/expiring": Record<string, unknown>;
  "session/closed": Record<string, unknown>;
  "server/draining": Record<string, unknown>;
  "connection/superseded": Record<string, unknown>;
}

/** Where the client keeps its id and how far it has read; `sessionStorage` unless you say otherwise. */
export interface Storage {
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
  removeItem(key: string): void;
}

export interface ClientOptions {
  /** The gateway's origin; the page's own by default. */
  baseUrl?: string;
  /** The session or API token; without it the session cookie is used. Asked once more after a 401. */
  getToken?: () => string | Promise<string>;
  /** `auto`: a WebSocket, else server-sent events. */
  transport?: "auto" | TransportName;
  clientId?: string;
  storage?: Storage;
  onState?: (state: State) => void;
}

export interface FollowOptions {
  /** How long the page waits; the run itself goes on. 0 waits as long as the server does. */
  timeoutMs?: number;
  onProgress?: (progress: Progress) => void;
  /** Cancels the run. */
  signal?: AbortSignal;
}

export interface ExecuteOptions extends FollowOptions {
  /** A start with the same key is the same run; one is made when none is given. */
  idempotencyKey?: string;
  version?: number;
  resourceKind?: "playbook" | "agent";
  delivery?: "client" | "session" | "user" | "none";
  /** The deadline that the server keeps. */
  timeoutSecs?: number;
  onTimeout?: "leave" | "cancel";
}

/** A request that runs. */
export interface Running<T = unknown> {
  requestId: string;
  executionId: string;
  result: Promise<T>;
}
