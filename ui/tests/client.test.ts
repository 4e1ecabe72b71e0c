import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { NoetlClient, NoetlError, type Progress, type State } from "../src/client/noetl-client";
import { FakeGateway } from "./gateway";

let gateway: FakeGateway;
let baseUrl: string;
let clients: NoetlClient[];

beforeEach(async () => {
  gateway = new FakeGateway();
  baseUrl = await gateway.start();
  clients = [];
});

afterEach(async () => {
  clients.forEach((client) => client.close());
  await gateway.stop();
});

function made(options: ConstructorParameters<typeof NoetlClient>[0] = {}): NoetlClient {
  const client = new NoetlClient({ baseUrl, transport: "sse", ...options });
  clients.push(client);
  return client;
}

function nextState(client: NoetlClient, wanted: State): Promise<void> {
  return new Promise((resolve) => {
    const end = client.on("state", (state) => state === wanted && (end(), resolve()));
  });
}

const caught = (promise: Promise<unknown>) => promise.then(() => expect.unreachable(), (error: NoetlError) => error);

describe("a client", () => {
  it("connects, and goes through its states", async () => {
    const states: State[] = [];
    const client = made({ onState: (state) => states.push(state) });
    expect(client.state).toBe("idle");
    await client.connect();
    expect(client.clientId).toBe("client-1");
    client.close();
    expect(states).toEqual(["connecting", "open", "closed"]);
  });

  it("runs a playbook and resolves with its data", async () => {
    const client = made();
    const steps: Progress[] = [];
    gateway.execute = () => {
      setTimeout(() => {
        gateway.say("playbook/progress", { requestId: "r1", executionId: "9007199254740993", progress: 0.5 });
        gateway.result("r1", { answer: 42 });
      });
      return gateway.accepted("r1");
    };
    const options = { onProgress: (one: Progress) => steps.push(one), timeoutSecs: 9, idempotencyKey: "k" };
    expect(await client.executePlaybookAsync("a/b", { x: 1 }, options)).toEqual({ answer: 42 });
    expect(steps.map(({ progress }) => progress)).toEqual([0.5]);
    expect(gateway.calls[0]).toEqual({
      method: "playbook/execute",
      params: { name: "a/b", variables: { x: 1 }, clientId: "client-1", timeoutSecs: 9, idempotencyKey: "k" },
    });
  });

  it("sends a start again whose answer is lost, under one key", async () => {
    const client = made();
    gateway.cuts = 2;
    const running = await client.executePlaybook("a/b", { x: 1 });
    gateway.result("r1", "once");
    expect(await running.result).toBe("once");
    const starts = gateway.calls.filter(({ method }) => method === "playbook/execute");
    const idempotencyKey = starts[0]?.params["idempotencyKey"];
    expect(idempotencyKey).toMatch(/^[0-9a-f]{32}$/);
    const params = { name: "a/b", variables: { x: 1 }, clientId: "client-1", idempotencyKey };
    expect(starts.map((one) => one.params)).toEqual([params, params, params]);
  });

  it("gives up a start that nobody answers in time", async () => {
    const client = made();
    await client.connect();
    gateway.cuts = 1000;
    expect(await caught(client.executePlaybookAsync("a/b", {}, { timeoutMs: 1 }))).toMatchObject({ code: -32007 });
  });

  it("keeps ids as strings, and takes a result that comes before the answer", async () => {
    const client = made();
    await client.connect();
    gateway.execute = async () => {
      gateway.result("r1", "early");
      await new Promise((resolve) => setTimeout(resolve, 50));
      return gateway.accepted("r1");
    };
    const running = await client.executePlaybook("a/b");
    expect(running.executionId).toBe("9007199254740993");
    expect(await running.result).toBe("early");
  });

  it("rejects with what the gateway says", async () => {
    const client = made();
    gateway.execute = () => ({ code: -32003, message: "not yours" });
    expect(await caught(client.executePlaybookAsync("a/b"))).toMatchObject({ code: -32003, message: "not yours" });
    gateway.execute = () => {
      const error = { code: -32000, message: "failed", data: { step: "load" } };
      setTimeout(() => gateway.say("playbook/result", { ...gateway.accepted("r2"), status: "FAILED", error }));
      return gateway.accepted("r2");
    };
    const error = await caught(client.executePlaybookAsync("a/b"));
    expect(error).toMatchObject({ code: -32000, data: { step: "load" }, requestId: "r2", executionId: "9007199254740993" });
  });

  it("fetches a value that is too large for the stream", async () => {
    const client = made();
    const large = "x".repeat(1_000_000);
    gateway.values.set("r1", { large });
    gateway.execute = () => {
      const dataRef = { ref: "noetl://x", bytes: 1_000_000, sha256: "0" };
      setTimeout(() => gateway.say("playbook/result", { ...gateway.accepted("r1"), status: "COMPLETED", data: null, dataRef }));
      return gateway.accepted("r1");
    };
    expect(await client.executePlaybookAsync("a/b")).toEqual({ large });
  });

  it("reconnects where it stopped, and tells each result once", async () => {
    const client = made();
    const results: string[] = [];
    client.on("playbook/result", ({ requestId }) => results.push(requestId));
    const first = await client.executePlaybook("a/b");
    gateway.result("r0", 0);
    await gateway.until(() => gateway.calls.some(({ method }) => method === "ack"));
    const again = nextState(client, "open");
    gateway.cut();
    gateway.result("r1", 1); // while nobody is connected
    await again;
    expect(await first.result).toBe(1);
    expect(results).toEqual(["r0", "r1"]);
    expect(gateway.seen.filter(({ url }) => url.startsWith("/events")).at(-1)?.headers["last-event-id"]).toBe("e1-1");
    expect(client.clientId).toBe("client-1");
  });

  it("asks for every open request when the history is lost", async () => {
    const client = made();
    gateway.execute = () => gateway.accepted("r1");
    const running = await client.executePlaybook("a/b");
    gateway.say("playbook/state", { executionId: "1", eventType: "step.done" });
    gateway.documents.set("r1", { ...gateway.accepted("r1"), state: "completed", result: "kept" });
    await gateway.until(() => gateway.streams.size === 1);
    const seen = new Promise<void>((resolve) => client.on("playbook/state", () => resolve()));
    gateway.say("playbook/state", { executionId: "1", eventType: "step.done" });
    await seen;
    gateway.wipe();
    gateway.cut();
    expect(await running.result).toBe("kept");
  });

  it("gets a result that came while it was away, though it had heard nothing before", async () => {
    const client = made();
    const running = await client.executePlaybook("a/b");
    gateway.cut();
    gateway.documents.set("r1", { ...gateway.accepted("r1"), state: "completed", result: "first" });
    expect(await running.result).toBe("first");
  });

  it("says that a request is unknown when nobody knows it any more", async () => {
    const client = made();
    const running = await client.executePlaybook("a/b");
    const told = new Promise((resolve) => client.on("connection/superseded", resolve));
    gateway.tell("connection/superseded");
    await told;
    gateway.cut();
    expect(await caught(running.result)).toMatchObject({ code: -32008 });
  });

  it("takes a new id when another tab has its own", async () => {
    const client = made();
    await client.connect();
    const again = nextState(client, "open");
    const told = new Promise((resolve) => client.on("connection/superseded", resolve));
    gateway.tell("connection/superseded", { reason: "another tab" });
    await told;
    gateway.cut();
    await again;
    expect(client.clientId).toBe("client-2");
  });

  it("gives up in the page after its time, and leaves the run alone", async () => {
    const client = made();
    const error = await caught(client.executePlaybookAsync("a/b", {}, { timeoutMs: 50 }));
    expect(error).toMatchObject({ code: -32001, requestId: "r1", data: { where: "page" } });
    expect(gateway.calls.map(({ method }) => method)).toEqual(["playbook/execute"]);
  });

  it("cancels the run when the page aborts", async () => {
    const client = made();
    const aborting = new AbortController();
    const running = await client.executePlaybook("a/b", {}, { signal: aborting.signal });
    aborting.abort();
    expect(await caught(running.result)).toMatchObject({ code: -32004 });
    await gateway.until(() => gateway.calls.length === 2);
    expect(gateway.calls[1]).toEqual({ method: "playbook/cancel", params: { requestId: "r1" } });
  });

  it("asks for a token once after a 401", async () => {
    gateway.tokens = ["new"];
    const given = ["old", "new"];
    const client = made({ getToken: () => given.shift() ?? "none" });
    await client.connect();
    expect(gateway.seen.map(({ headers }) => headers.authorization)).toEqual(["Bearer old", "Bearer new"]);
    expect(gateway.seen.every(({ url }) => !url.includes("old") && !url.includes("new"))).toBe(true);
  });

  it("stops when the new token is refused as well", async () => {
    gateway.tokens = ["none of them"];
    let asked = 0;
    const client = made({ getToken: () => `token-${++asked}` });
    let told = 0;
    client.on("unauthorized", () => told++);
    expect(await caught(client.connect())).toMatchObject({ code: -32002 });
    expect([asked, told, client.state]).toEqual([2, 1, "closed"]);
  });

  it("makes its session longer when it is about to end", async () => {
    const client = made();
    await client.login("a", "b");
    await client.connect();
    gateway.tell("session/expiring", { reason: "expires" });
    const asked = () => gateway.seen.filter(({ url }) => url === "/api/auth/refresh");
    await gateway.until(() => asked().length === 1);
    expect(asked().map(({ headers }) => headers.authorization)).toEqual(["Bearer first"]);
    while (gateway.seen.at(-1)?.headers.authorization !== "Bearer second") await client.cancel("r1");
  });

  it("leaves the session to whoever gives the token", async () => {
    const client = made({ getToken: () => "mine" });
    await client.connect();
    const told = new Promise((resolve) => client.on("session/expiring", resolve));
    gateway.tell("session/expiring", { reason: "expires" });
    await told;
    await client.cancel("r1");
    expect(gateway.seen.map(({ url }) => url.split("?")[0])).toEqual(["/events", "/rpc"]);
  });

  it("goes on from what an earlier page has stored", async () => {
    const kept = new Map<string, string>();
    const storage = {
      getItem: (key: string) => kept.get(key) ?? null,
      setItem: (key: string, value: string) => void kept.set(key, value),
      removeItem: (key: string) => void kept.delete(key),
    };
    const before = made({ storage });
    await before.connect();
    const heard = new Promise((resolve) => before.on("playbook/result", resolve));
    gateway.result("r1", 1);
    await heard;
    before.close();
    gateway.result("r2", 2);
    const after = made({ storage });
    const results: string[] = [];
    const second = new Promise<void>((resolve) =>
      after.on("playbook/result", ({ requestId }) => (results.push(requestId), resolve())),
    );
    await after.connect();
    await second;
    expect([after.clientId, results]).toEqual(["client-1", ["r2"]]);
    expect([...kept.keys()].sort()).toEqual([`noetl:${baseUrl}:clientId`, `noetl:${baseUrl}:lastEventId`]);
  });

  it("falls back to server-sent events where a WebSocket is not to be had", async () => {
    const client = made({ transport: "auto" });
    await client.connect();
    expect(gateway.seen.map(({ url }) => url.split("?")[0])).toContain("/events");
    expect(client.state).toBe("open");
  });

  it("watches executions, also after a reconnect", async () => {
    const client = made();
    const told: unknown[] = [];
    const end = await client.subscribe(["7"], ["state", "logs"], ({ channel, executionId }) => told.push([channel, executionId]));
    gateway.say("playbook/state", { executionId: "7", eventType: "step.done" });
    gateway.tell("playbook/log", { executionId: "8" });
    gateway.tell("playbook/event", { executionId: "7" });
    const heard = new Promise((resolve) => client.on("playbook/log", ({ executionId }) => executionId === "7" && resolve(0)));
    gateway.tell("playbook/log", { executionId: "7" });
    await heard;
    expect(told).toEqual([["state", "7"], ["logs", "7"]]);
    const again = nextState(client, "open");
    gateway.cut();
    await again;
    await gateway.until(() => gateway.calls.filter(({ method }) => method === "subscribe").length === 2);
    await end();
    expect(gateway.calls.at(-1)).toEqual({
      method: "unsubscribe",
      params: { clientId: "client-1", executionIds: ["7"], channels: ["state", "logs"] },
    });
  });

  it("says that nobody is there, and goes on trying", async () => {
    await gateway.stop();
    const client = made();
    const opening = caught(client.connect());
    await nextState(client, "reconnecting");
    client.close();
    expect(await opening).toMatchObject({ code: -32007 });
  });
});
