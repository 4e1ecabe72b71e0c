import { describe, expect, it } from "vitest";
import { waitMs } from "../src/client/backoff";
import { EventStream, type Sent } from "../src/client/eventstream";
import { NoetlError } from "../src/client/errors";
import { begun, changed, completed, failed, progressed } from "../src/demo/runs";

describe("the wait before another try", () => {
  it("is anything up to a bound that doubles to half a minute", () => {
    expect([0, 1, 2, 5, 6, 7, 1000].map((attempt) => waitMs(attempt, () => 1))).toEqual([
      500, 1000, 2000, 16000, 30000, 30000, 30000,
    ]);
    expect(waitMs(9, () => 0)).toBe(0);
  });
});

describe("server-sent events", () => {
  const text = 'retry: 1500\n\n: hello\n\nevent: playbook/result\nid: e-1\ndata: {"a":\ndata: 1}\n\ndata:x\n\n';
  const events: Sent[] = [
    { event: "playbook/result", id: "e-1", data: '{"a":\n1}' },
    { event: "message", id: undefined, data: "x" },
  ];

  it.each(["\n", "\r\n", "\r"])("are read with line breaks %j however they are cut", (end) => {
    const whole = text.replaceAll("\n", end);
    for (let size = 1; size <= whole.length; size++) {
      const stream = new EventStream();
      const read: Sent[] = [];
      for (let at = 0; at < whole.length; at += size) read.push(...stream.push(whole.slice(at, at + size)));
      if (end === "\r") read.push(...stream.push("\n"));
      expect(read).toEqual(events);
    }
  });
});

describe("a run in the playground", () => {
  const run = begun({ requestId: "r", executionId: "9007199254740993", playbookPath: "a/b" });

  it("begins without a result", () => {
    expect(run).toMatchObject({ state: "running", results: 0, executionId: "9007199254740993" });
  });

  it("shows progress and steps", () => {
    const told = progressed(run, { requestId: "r", executionId: "1", step: "load", message: "half", progress: 0.5 });
    expect(told).toMatchObject({ message: "load: half", progress: 0.5 });
    const kept = progressed(told, { requestId: "r", executionId: "1" });
    expect(kept).toMatchObject({ message: "load: half", progress: 0.5 });
    const steps = changed(told, { executionId: "1", eventType: "step.done", stepName: "load", status: "COMPLETED" });
    expect(steps.steps).toEqual(["load · step.done · COMPLETED"]);
  });

  it("ends with data, a failure or a cancellation", () => {
    expect(completed(run, { ok: true })).toMatchObject({ state: "completed", results: 1, text: '{\n  "ok": true\n}' });
    expect(failed(run, new NoetlError({ code: -32001, message: "late" }))).toMatchObject({
      state: "failed",
      message: "-32001 late",
    });
    expect(failed(run, new NoetlError({ code: -32004, message: "stopped" })).state).toBe("cancelled");
  });

  it("cuts what is too long to show", () => {
    expect(completed(run, "x".repeat(300_000)).text.length).toBeLessThan(201_000);
  });
});
