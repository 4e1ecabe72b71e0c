import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { NoetlClient, type Frame } from "../src/client/noetl-client";

/** A WebSocket that a test speaks through; calls over HTTP are answered at once. */
class FakeSocket {
  static readonly OPEN = 1;
  static made: FakeSocket[] = [];
  readyState = 0;
  said: Frame[] = [];
  onopen: (() => void) | undefined;
  onmessage: ((message: { data: string }) => void) | undefined;
  onclose: ((event: { code: number; reason: string }) => void) | undefined;

  constructor(
    readonly url: string,
    readonly protocol: string,
  ) {
    FakeSocket.made.push(this);
    queueMicrotask(() => {
      this.readyState = FakeSocket.OPEN;
      this.onopen?.();
    });
  }

  send(text: string): void {
    const frame = JSON.parse(text) as Frame;
    this.said.push(frame);
    if (frame.method !== "initialize") return;
    const clientId = frame.params?.["clientId"] ?? `client-${FakeSocket.made.length}`;
    const recovery = { requested: false, recovered: false, from: null };
    this.hear({ jsonrpc: "2.0", id: 1, result: { clientId, epoch: "e", recovery, pendingRequests: [] } });
  }

  hear(frame: Frame): void {
    this.onmessage?.({ data: JSON.stringify(frame) });
  }

  close(code = 1000): void {
    this.readyState = 3;
    this.onclose?.({ code, reason: "" });
  }
}

const asked: string[] = [];
let ticketStatus = 200;
let client: NoetlClient;

beforeEach(() => {
  FakeSocket.made = [];
  asked.length = 0;
  ticketStatus = 200;
  vi.stubGlobal("WebSocket", FakeSocket);
  vi.stubGlobal("fetch", async (url: string, init: RequestInit) => {
    asked.push(`${init.method} ${url} ${String(init.body ?? "")}`);
    return Response.json({ ticket: "t/1", code: "invalid_session" }, { status: ticketStatus });
  });
  client = new NoetlClient({ baseUrl: "http://gateway", transport: "ws" });
});

afterEach(() => {
  client.close();
  vi.unstubAllGlobals();
});

function opened(): Promise<void> {
  return new Promise((resolve) => {
    const end = client.on("state", (state) => state === "open" && (end(), resolve()));
  });
}

describe("a client on a WebSocket", () => {
  it("opens it with a ticket and introduces itself", async () => {
    await client.connect();
    expect(asked).toEqual(['POST http://gateway/api/auth/ticket {"purpose":"ws"}']);
    const [socket] = FakeSocket.made;
    expect([socket?.url, socket?.protocol]).toEqual(["ws://gateway/ws?ticket=t%2F1", "noetl.v1"]);
    expect(socket?.said[0]).toMatchObject({ id: 1, method: "initialize", params: { protocolVersion: "2024-11-05" } });
    expect(client.clientId).toBe("client-1");
  });

  it("answers pings, and acknowledges results on the same socket", async () => {
    await client.connect();
    const [socket] = FakeSocket.made;
    socket?.hear({ jsonrpc: "2.0", method: "ping", params: {} });
    const params = { eventId: "e-4", requestId: "r", executionId: "1", status: "COMPLETED", data: 1 };
    socket?.hear({ jsonrpc: "2.0", method: "playbook/result", params });
    expect(socket?.said.slice(1)).toEqual([
      { jsonrpc: "2.0", method: "pong" },
      { jsonrpc: "2.0", method: "ack", params: { clientId: "client-1", eventId: "e-4" } },
    ]);
    expect(asked).toHaveLength(1);
  });

  it("comes back as the same client behind its last event", async () => {
    await client.connect();
    const params = { eventId: "e-4", executionId: "1", eventType: "step.exit" };
    FakeSocket.made[0]?.hear({ jsonrpc: "2.0", method: "playbook/state", params });
    const again = opened();
    FakeSocket.made[0]?.close(1013);
    await again;
    expect(FakeSocket.made[1]?.said[0]?.params).toMatchObject({ clientId: "client-1", lastEventId: "e-4" });
  });

  it("takes a new id when it is superseded", async () => {
    await client.connect();
    const again = opened();
    FakeSocket.made[0]?.close(4409);
    await again;
    expect(FakeSocket.made[1]?.said[0]?.params).not.toHaveProperty("clientId");
    expect(client.clientId).toBe("client-2");
  });

  it("stops when the session is over", async () => {
    await client.connect();
    const told = new Promise((resolve) => client.on("unauthorized", () => resolve("told")));
    ticketStatus = 401;
    FakeSocket.made[0]?.close(4401);
    expect(await told).toBe("told");
    expect(client.state).toBe("closed");
  });

  it("begins anew when the gateway says what is no message", async () => {
    await client.connect();
    const again = opened();
    FakeSocket.made[0]?.onmessage?.({ data: "{" });
    await again;
    expect(FakeSocket.made).toHaveLength(2);
  });
});
