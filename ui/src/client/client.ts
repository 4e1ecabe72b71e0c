import { waitMs } from "./backoff";
import { Book } from "./book";
import { Caller } from "./caller";
import { Connection } from "./connection";
import { CODES, NoetlError } from "./errors";
import { missing, resultOf } from "./results";
import { storageHere } from "./storage";
import type {
  Channel,
  ClientOptions,
  Events,
  ExecuteOptions,
  FollowOptions,
  Frame,
  Init,
  Progress,
  RequestDocument,
  Result,
  Running,
  State,
  Storage,
  Told,
  User,
  Variables,
} from "./types";

const TIMEOUT_MS = 120_000;
const LOOK_S = 30;
const AGAIN_MS = 1000;
const LOGGED = new Set(["playbook/result", "playbook/progress", "playbook/state"]);
const CHANNELS: Record<string, Channel> = {
  "playbook/state": "state",
  "playbook/event": "events",
  "playbook/log": "logs",
};
type Handler = (told: never) => void;
type Accepted = { requestId: string; executionId: string };
interface Watch {
  executionIds: string[];
  channels: Channel[];
  handler: (told: Told) => void;
}

/** A page at the gateway: runs playbooks, and hears of them until they end. */
export class NoetlClient {
  #caller: Caller;
  #connection: Connection;
  #book = new Book();
  #storage: Storage;
  #clientId: string;
  #handlers = new Map<string, Set<Handler>>();
  #watches = new Set<Watch>();
  #looking = new Set<string>();

  constructor(options: ClientOptions = {}) {
    this.#caller = new Caller(options, () => this.#unauthorized());
    this.#storage = options.storage ?? storageHere();
    this.#clientId = options.clientId ?? this.#storage.getItem(this.#key("clientId")) ?? "";
    this.#book.readFrom(this.#storage.getItem(this.#key("lastEventId")) ?? "");
    this.#connection = new Connection(this.#caller, options.transport ?? "auto", {
      ask: () => ({ clientId: this.#clientId, lastEventId: this.#book.lastEventId }),
      state: (state) => (options.onState?.(state), this.#emit("state", state)),
      init: (init) => this.#begin(init),
      frame: (frame, eventId) => this.#take(frame, eventId),
      loseId: () => this.#forget(),
    });
  }

  get state(): State {
    return this.#connection.state;
  }

  /** The gateway's name for this page; empty before the first connection. */
  get clientId(): string {
    return this.#clientId;
  }

  /** Connect, and stay connected. Resolves when the gateway knows this page. */
  connect(): Promise<void> {
    return this.#connection.opened();
  }

  close(): void {
    this.#connection.close();
  }

  /** Run a playbook and wait for its result. */
  async executePlaybookAsync<T = unknown>(
    path: string,
    variables: Variables = {},
    options: ExecuteOptions = {},
  ): Promise<T> {
    return (await this.executePlaybook<T>(path, variables, options)).result;
  }

  /** Start a playbook; its result follows. */
  async executePlaybook<T = unknown>(
    path: string,
    variables: Variables = {},
    options: ExecuteOptions = {},
  ): Promise<Running<T>> {
    const { timeoutMs = TIMEOUT_MS, onProgress, signal, ...wish } = options;
    if (signal?.aborted) throw new NoetlError({ code: CODES.cancelled, message: "aborted by the page" });
    await this.connect();
    const idempotencyKey = wish.idempotencyKey ?? newKey();
    const params = { name: path, variables, clientId: this.#clientId, ...wish, idempotencyKey };
    const endsAt = Date.now() + (timeoutMs || TIMEOUT_MS);
    const { requestId, executionId } = await this.#started(params, endsAt);
    const leftMs = timeoutMs && Math.max(1, endsAt - Date.now());
    return this.follow<T>(requestId, executionId, { ...options, timeoutMs: leftMs });
  }

  /** Wait for a request that runs already, such as one of `pendingRequests`. */
  follow<T = unknown>(requestId: string, executionId: string, options: FollowOptions = {}): Running<T> {
    const ids = { requestId, executionId };
    const { timeoutMs = TIMEOUT_MS, onProgress, signal } = options;
    const result = new Promise<T>((resolve, reject) => {
      let timer: ReturnType<typeof setTimeout> | undefined;
      const leave = (error?: NoetlError) => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", abort);
        this.#book.forget(requestId);
        if (error) reject(error);
      };
      const abort = () => {
        this.cancel(requestId).catch(() => undefined);
        leave(new NoetlError({ code: CODES.cancelled, message: "aborted by the page" }, ids));
      };
      if (signal?.aborted) return abort();
      signal?.addEventListener("abort", abort);
      const late = "no result in time; the run goes on";
      if (timeoutMs > 0) {
        timer = setTimeout(
          () => leave(new NoetlError({ code: CODES.timeout, message: late, data: { where: "page" } }, ids)),
          timeoutMs,
        );
      }
      this.#book.expect(requestId, {
        progressed: onProgress,
        ended: (told) => {
          leave();
          this.#valueOf(told).then((value) => resolve(value as T), reject);
        },
      });
    });
    result.catch(() => undefined); // whoever wants the ids alone need not look at the result
    return { ...ids, result };
  }

  /** Stop a run, by the id of its request or of its execution. */
  cancel(id: string, reason?: string): Promise<{ executionId: string; status: string }> {
    const name = /^\d+$/.test(id) ? "executionId" : "requestId";
    return this.#caller.rpc("playbook/cancel", { [name]: id, ...(reason && { reason }) });
  }

  /** What is known of a request; waits for its end up to `waitS` seconds. */
  request(requestId: string, waitS = 0): Promise<RequestDocument> {
    const path = `/api/requests/${encodeURIComponent(requestId)}`;
    return this.#caller.json("GET", waitS ? `${path}?wait=${waitS}` : path);
  }

  /** Hear what executions do, own ones or not. Returns what ends it. */
  async subscribe(
    executionIds: string[],
    channels: Channel[],
    handler: (told: Told) => void,
  ): Promise<() => Promise<void>> {
    await this.connect();
    const watch = { executionIds, channels, handler };
    this.#watches.add(watch);
    try {
      await this.#watch(watch);
    } catch (error) {
      this.#watches.delete(watch);
      throw error;
    }
    return async () => {
      this.#watches.delete(watch);
      const others = new Set([...this.#watches].flatMap((one) => one.executionIds));
      const gone = executionIds.filter((id) => !others.has(id));
      if (gone.length) {
        const params = { clientId: this.#clientId, executionIds: gone, channels };
        await this.#caller.rpc("unsubscribe", params);
      }
    };
  }

  /** Hear something; returns what ends it. */
  on<K extends keyof Events>(event: K, handler: (told: Events[K]) => void): () => void {
    const handlers = this.#handlers.get(event) ?? new Set();
    this.#handlers.set(event, handlers.add(handler as Handler));
    return () => void handlers.delete(handler as Handler);
  }

  /** A GraphQL operation; its errors are thrown. */
  async graphql<T = Record<string, unknown>>(query: string, variables: Variables = {}): Promise<T> {
    type Fault = { message: string; extensions?: { code?: string; rpcCode?: number } };
    const told = await this.#caller.json<{ data?: T; errors?: Fault[] }>("POST", "/graphql", {
      query,
      variables,
    });
    const fault = told.errors?.[0];
    if (!fault) return told.data as T;
    const code = fault.extensions?.rpcCode ?? CODES.internal;
    throw new NoetlError({ code, message: fault.message, data: fault.extensions });
  }

  async login(email: string, password: string): Promise<User> {
    type Told = { session_token: string; user: User };
    const told = await this.#caller.bare<Told>("POST", "/api/auth/login", { email, password });
    if (!this.#caller.isAtHome) this.#caller.use(told.session_token);
    return told.user;
  }

  /** Sign in at a provider; the page is left, and comes back. */
  loginWithRedirect(provider: string, returnTo = location.pathname + location.search): void {
    const path = `/api/auth/oidc/${encodeURIComponent(provider)}/start`;
    location.assign(`${this.#caller.baseUrl}${path}?return_to=${encodeURIComponent(returnTo)}`);
  }

  async logout(): Promise<void> {
    this.close();
    await this.#caller.json("POST", "/api/auth/logout");
    this.#caller.use("");
    this.#forget();
  }

  whoami(): Promise<User> {
    return this.#caller.json("GET", "/api/auth/whoami");
  }

  /** Send a start until it is answered; its key sees to it that there is one run. */
  async #started(params: Record<string, unknown>, endsAt: number): Promise<Accepted> {
    for (let attempt = 0; ; attempt++) {
      try {
        return await this.#caller.rpc<Accepted>("playbook/execute", params);
      } catch (error) {
        const isLost = error instanceof NoetlError && error.code === CODES.unavailable;
        const ms = waitMs(attempt);
        if (!isLost || this.state === "closed" || Date.now() + ms >= endsAt) throw error;
        await new Promise((resolve) => setTimeout(resolve, ms));
      }
    }
  }

  async #valueOf(told: Result): Promise<unknown> {
    if (told.status !== "COMPLETED") {
      throw new NoetlError(told.error ?? { code: CODES.playbookFailed, message: told.status }, told);
    }
    if (!told.dataRef) return told.data;
    return this.#caller.json("GET", `/api/requests/${encodeURIComponent(told.requestId)}/result`);
  }

  #begin(init: Init): void {
    this.#clientId = init.clientId;
    this.#storage.setItem(this.#key("clientId"), init.clientId);
    this.#emit("init", init);
    if (!init.recovery.recovered) this.#book.waiting.forEach((id) => void this.#look(id));
    this.#watches.forEach((watch) => this.#watch(watch).catch(() => undefined));
  }

  #watch({ executionIds, channels }: Watch): Promise<unknown> {
    return this.#caller.rpc("subscribe", { clientId: this.#clientId, executionIds, channels });
  }

  /** Ask for a request until it has ended: the stream may have nothing to say of it any more. */
  async #look(requestId: string): Promise<void> {
    if (this.#looking.has(requestId)) return;
    this.#looking.add(requestId);
    try {
      while (this.#book.waiting.includes(requestId) && this.state !== "closed") {
        const told = await this.request(requestId, LOOK_S).then(resultOf, (error: NoetlError) =>
          error.code === CODES.notFound ? missing(requestId, error) : undefined,
        );
        if (told) this.#result(told);
        else await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
      }
    } finally {
      this.#looking.delete(requestId);
    }
  }

  #take(frame: Frame, eventId: string): void {
    this.#emit("frame", frame);
    const { method = "", params = {} } = frame;
    // Another tab may have done it; a session that nothing makes longer ends, and is told so.
    if (method === "session/expiring") this.#caller.refresh().catch(() => undefined);
    if (method === "ping") this.#connection.say({ jsonrpc: "2.0", method: "pong" });
    const isLogged = LOGGED.has(method) && eventId !== "";
    if (isLogged && !this.#book.isNew(eventId)) return;
    if (method === "playbook/result") this.#result(params as unknown as Result);
    else if (method) this.#emit(method as keyof Events, params as never);
    if (method === "playbook/progress") this.#book.progress(params as unknown as Progress);
    const channel = CHANNELS[method];
    if (channel) this.#tellWatches(channel, params);
    if (!isLogged) return;
    this.#storage.setItem(this.#key("lastEventId"), eventId);
    if (method === "playbook/result") this.#acknowledge(eventId);
  }

  #acknowledge(eventId: string): void {
    const params = { clientId: this.#clientId, eventId };
    const isSaid = this.#connection.say({ jsonrpc: "2.0", method: "ack", params });
    if (!isSaid) this.#caller.tell("ack", params);
  }

  #result(result: Result): void {
    if (this.#book.result(result)) this.#emit("playbook/result", result);
  }

  #tellWatches(channel: Channel, params: Record<string, unknown>): void {
    const executionId = String(params["executionId"] ?? "");
    for (const { executionIds, channels, handler } of [...this.#watches]) {
      if (channels.includes(channel) && executionIds.includes(executionId)) {
        guarded(() => handler({ channel, executionId, params }));
      }
    }
  }

  #emit<K extends keyof Events>(event: K, told: Events[K]): void {
    for (const handler of [...(this.#handlers.get(event) ?? [])]) {
      guarded(() => (handler as (told: Events[K]) => void)(told));
    }
  }

  #unauthorized(): void {
    if (this.state === "closed") return;
    this.#connection.close(new NoetlError({ code: CODES.unauthorized, message: "sign in again" }));
    this.#emit("unauthorized", undefined);
  }

  /** Begin as somebody new: the id is another tab's, or the session is over. */
  #forget(): void {
    this.#clientId = "";
    this.#book.readFrom("");
    this.#storage.removeItem(this.#key("clientId"));
    this.#storage.removeItem(this.#key("lastEventId"));
  }

  #key(name: string): string {
    return `noetl:${this.#caller.baseUrl}:${name}`;
  }
}

/** A key that nobody else has; `randomUUID` is only there in pages that came over TLS. */
function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (one) => one.toString(16).padStart(2, "0")).join("");
}

/** A fault of a handler is its page's: it must not stop the stream. */
function guarded(call: () => void): void {
  try {
    call();
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}
