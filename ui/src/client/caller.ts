import { CODES, errorOf, NoetlError, unreachable } from "./errors";
import type { ClientOptions, Failure } from "./types";

const JSON_TYPE = { "content-type": "application/json" };

/** Calls the gateway: with the token if there is one, else with the cookie of the session. */
export class Caller {
  readonly baseUrl: string;
  #getToken: ClientOptions["getToken"];
  #token = "";
  #asking: Promise<string> | undefined;
  #onUnauthorized: () => void;
  #ids = 1;

  constructor(options: ClientOptions, onUnauthorized: () => void) {
    const here = globalThis.location?.origin;
    const base = options.baseUrl ?? here;
    if (!base) throw new TypeError("baseUrl is needed outside of a page");
    this.baseUrl = base.replace(/\/+$/, "");
    this.#getToken = options.getToken;
    this.#onUnauthorized = onUnauthorized;
  }

  /** Whether the gateway's cookies are this page's own. */
  get isAtHome(): boolean {
    return globalThis.location?.origin === new URL(this.baseUrl).origin;
  }

  /** Use a token that a login gave; it is kept in memory only. */
  use(token: string): void {
    this.#token = token;
  }

  /** One call; a 401 asks for a token once. */
  async fetch(path: string, init: RequestInit = {}): Promise<Response> {
    if (!this.#token && this.#getToken) await this.#ask();
    const used = this.#token;
    let answer = await this.#send(path, init);
    if (answer.status === 401 && (await this.#isRenewed(used))) {
      answer = await this.#send(path, init);
    }
    if (answer.status === 401) this.#onUnauthorized();
    return answer;
  }

  /** The JSON of an answer; a refusal is thrown. */
  async json<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
    return (await read(await this.fetch(path, asked(method, body, signal)))) as T;
  }

  /** The same without a token and without another try: to sign in. */
  async bare<T>(method: string, path: string, body?: unknown): Promise<T> {
    return (await read(await this.#send(path, asked(method, body)))) as T;
  }

  /** The result of a JSON-RPC call. */
  async rpc<T>(method: string, params: Record<string, unknown>): Promise<T> {
    const body = { jsonrpc: "2.0", id: this.#ids++, method, params };
    const answer = await this.json<{ result?: T; error?: Failure }>("POST", "/rpc", body);
    if (answer.error) throw new NoetlError(answer.error);
    return answer.result as T;
  }

  /** Say something that needs no answer. */
  tell(method: string, params: Record<string, unknown>): void {
    this.fetch("/rpc", asked("POST", { jsonrpc: "2.0", method, params })).catch(() => undefined);
  }

  /** Make the session longer; whoever gives the token himself does that himself. */
  async refresh(): Promise<void> {
    if (this.#getToken) return;
    const told = await this.bare<{ session_token: string }>("POST", "/api/auth/refresh");
    if (this.#token) this.#token = told.session_token;
  }

  /** What opens one stream once, and may stand in an address. */
  async ticket(purpose: "events" | "ws"): Promise<string> {
    return (await this.json<{ ticket: string }>("POST", "/api/auth/ticket", { purpose })).ticket;
  }

  async #send(path: string, init: RequestInit): Promise<Response> {
    const headers = new Headers(init.headers);
    if (this.#token) headers.set("authorization", `Bearer ${this.#token}`);
    try {
      return await fetch(this.baseUrl + path, {
        ...init,
        headers,
        credentials: this.#token ? "omit" : "include",
        cache: "no-store",
      });
    } catch (fault) {
      if (init.signal?.aborted) throw new NoetlError({ code: CODES.cancelled, message: "aborted" });
      throw unreachable(`the gateway cannot be reached: ${(fault as Error).message}`);
    }
  }

  /** Whether there is another token than the refused one. */
  async #isRenewed(used: string): Promise<boolean> {
    if (this.#token !== used) return true;
    if (!this.#getToken) return false;
    await this.#ask();
    return this.#token !== "";
  }

  async #ask(): Promise<void> {
    this.#asking ??= Promise.resolve(this.#getToken!()).finally(() => (this.#asking = undefined));
    this.#token = await this.#asking;
  }
}

function asked(method: string, body?: unknown, signal?: AbortSignal): RequestInit {
  const init: RequestInit = { method };
  if (body !== undefined) Object.assign(init, { headers: JSON_TYPE, body: JSON.stringify(body) });
  if (signal) init.signal = signal;
  return init;
}

async function read(answer: Response): Promise<unknown> {
  if (!answer.ok) throw await errorOf(answer);
  const text = await answer.text();
  const isJson = (answer.headers.get("content-type") ?? "").includes("json");
  return isJson && text ? JSON.parse(text) : text || undefined;
}
