/** A gateway for tests of the client: it says what a test tells it to. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

type Params = Record<string, unknown>;
export interface Seen {
  method: string;
  url: string;
  headers: IncomingMessage["headers"];
  body: string;
}

export class FakeGateway {
  seen: Seen[] = [];
  streams = new Map<ServerResponse, string>();
  calls: { method: string; params: Params }[] = [];
  tokens: string[] = [];
  epoch = "e1";
  seq = 0;
  clients = 0;
  log: { id: string; text: string }[] = [];
  pending: Params[] = [];
  documents = new Map<string, Params>();
  values = new Map<string, unknown>();
  /** How many answers to starts are lost from now on. */
  cuts = 0;
  execute: (params: Params) => Params | Promise<Params> = () => this.accepted("r1");
  #server: Server;
  #waiting: { test: () => boolean; done: () => void }[] = [];

  constructor() {
    this.#server = createServer((request, response) => void this.#answer(request, response));
  }

  async start(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    this.cut();
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  /** End every stream without a word. */
  cut(): void {
    for (const stream of this.streams.keys()) stream.destroy();
    this.streams.clear();
    this.#look();
  }

  accepted(requestId: string): Params {
    return { requestId, executionId: "9007199254740993", status: "PENDING" };
  }

  /** Tell a client something that is kept in its log. */
  say(method: string, params: Params): string {
    const id = `${this.epoch}-${++this.seq}`;
    const text = `id: ${id}\ndata: ${JSON.stringify({ jsonrpc: "2.0", method, params })}\n\n`;
    this.log.push({ id, text });
    for (const stream of this.streams.keys()) stream.write(text);
    return id;
  }

  /** Tell whoever is connected now. */
  tell(method: string, params: Params = {}): void {
    for (const stream of this.streams.keys()) {
      stream.write(`data: ${JSON.stringify({ jsonrpc: "2.0", method, params })}\n\n`);
    }
  }

  result(requestId: string, data: unknown): string {
    return this.say("playbook/result", { ...this.accepted(requestId), status: "COMPLETED", data });
  }

  /** The broker has lost everything. */
  wipe(): void {
    this.epoch = "e2";
    this.seq = 0;
    this.log = [];
  }

  /** Come back when something is so. */
  until(test: () => boolean): Promise<void> {
    if (test()) return Promise.resolve();
    return new Promise((done) => this.#waiting.push({ test, done }));
  }

  #look(): void {
    this.#waiting = this.#waiting.filter(({ test, done }) => !test() || (done(), false));
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let body = "";
    for await (const part of request) body += String(part);
    const url = new URL(request.url ?? "/", "http://gateway");
    this.seen.push({ method: request.method ?? "", url: request.url ?? "", headers: request.headers, body });
    const token = /^Bearer (.*)$/.exec(request.headers.authorization ?? "")?.[1] ?? "";
    const json = (value: unknown, status = 200) => {
      response.writeHead(status, { "content-type": "application/json" });
      response.end(JSON.stringify(value));
    };
    if (this.tokens.length && !this.tokens.includes(token)) {
      json({ code: "invalid_session", detail: "sign in", status: 401 }, 401);
    } else if (url.pathname === "/events") this.#stream(request, response, url);
    else if (url.pathname === "/rpc") await this.#rpc(JSON.parse(body), json, response);
    else if (url.pathname === "/api/auth/login") json({ session_token: "first", user: { email: "a" } });
    else if (url.pathname === "/api/auth/refresh") json({ session_token: "second" });
    else if (url.pathname === "/api/auth/ticket") json({ ticket: "t", expires_in: 30 });
    else if (url.pathname.endsWith("/result")) json(this.values.get(url.pathname.split("/")[3] ?? ""));
    else if (url.pathname.startsWith("/api/requests/")) {
      const found = this.documents.get(url.pathname.split("/")[3] ?? "");
      json(found ?? { code: "unknown_request", detail: "nothing is known of it" }, found ? 200 : 404);
    } else json({ code: "not_found", detail: "no such thing" }, 404);
    this.#look();
  }

  async #rpc(call: Params & { params: Params }, json: (value: unknown) => void, response: ServerResponse): Promise<void> {
    const method = String(call["method"]);
    this.calls.push({ method, params: call.params });
    if (call["id"] === undefined) {
      response.writeHead(202).end();
    } else if (method === "playbook/execute") {
      const told = await this.execute(call.params);
      if (this.cuts-- > 0) response.destroy();
      else json({ jsonrpc: "2.0", id: call["id"], ...("code" in told ? { error: told } : { result: told }) });
    } else json({ jsonrpc: "2.0", id: call["id"], result: {} });
  }

  #stream(request: IncomingMessage, response: ServerResponse, url: URL): void {
    const last = String(request.headers["last-event-id"] ?? "");
    const clientId = url.searchParams.get("client_id") ?? `client-${++this.clients}`;
    const isHere = last.startsWith(`${this.epoch}-`);
    response.writeHead(200, { "content-type": "text/event-stream" });
    const recovery = { requested: last !== "", recovered: isHere, from: last || null };
    const init = {
      protocolVersion: "2024-11-05", serverInfo: { name: "noetl-gateway", version: "1" }, clientId,
      sessionExpiresAt: null, epoch: this.epoch, capabilities: {}, recovery, pendingRequests: this.pending,
    };
    response.write(`retry: 1000\n\ndata: ${JSON.stringify({ jsonrpc: "2.0", id: 1, result: init })}\n\n`);
    if (isHere) {
      const after = Number(last.split("-")[1]);
      for (const { id, text } of this.log) if (Number(id.split("-")[1]) > after) response.write(text);
    }
    this.streams.set(response, clientId);
    response.on("close", () => this.streams.delete(response));
  }
}
