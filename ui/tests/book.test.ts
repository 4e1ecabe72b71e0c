import { describe, expect, it } from "vitest";
import { Book } from "../src/client/book";
import type { Progress, Result } from "../src/client/types";

const result = (requestId: string): Result => ({ requestId, executionId: "1", status: "COMPLETED", data: requestId });
const step = (requestId: string, progress: number): Progress => ({ requestId, executionId: "1", progress });

describe("a book of requests", () => {
  it("tells a result to whoever waits, once", () => {
    const book = new Book();
    const told: Result[] = [];
    book.expect("a", { ended: (one) => told.push(one) });
    expect(book.waiting).toEqual(["a"]);
    expect(book.result(result("a"))).toBe(true);
    expect(book.result(result("a"))).toBe(false);
    expect(told).toEqual([result("a")]);
    expect(book.waiting).toEqual([]);
  });

  it("keeps what comes before somebody waits", () => {
    const book = new Book();
    const told: unknown[] = [];
    book.progress(step("a", 0.5));
    book.result(result("a"));
    book.expect("a", { ended: (one) => told.push(one), progressed: (one) => told.push(one) });
    expect(told).toEqual([step("a", 0.5), result("a")]);
    expect(book.waiting).toEqual([]);
  });

  it("keeps no more early results than it has room for", () => {
    const book = new Book();
    for (let i = 0; i < 5000; i++) book.result(result(`r${i}`));
    const told: Result[] = [];
    book.expect("r0", { ended: (one) => told.push(one) });
    book.expect("r4999", { ended: (one) => told.push(one) });
    expect(told).toEqual([result("r4999")]);
  });

  it("leaves out progress after the end", () => {
    const book = new Book();
    const told: unknown[] = [];
    book.expect("a", { ended: (one) => told.push(one), progressed: (one) => told.push(one) });
    book.progress(step("a", 0.1));
    book.result(result("a"));
    book.progress(step("a", 0.9));
    expect(told).toEqual([step("a", 0.1), result("a")]);
  });

  it("tells nothing to whoever has left", () => {
    const book = new Book();
    const told: Result[] = [];
    book.expect("a", { ended: (one) => told.push(one) });
    book.forget("a");
    book.result(result("a"));
    expect(told).toEqual([]);
  });
});

describe("ids of events", () => {
  it("are new once, and only when they rise", () => {
    const book = new Book();
    const seen = ["e1-5", "e1-5", "e1-4", "e1-6", "e2-1", "e2-1"].map((id) => book.isNew(id));
    expect(seen).toEqual([true, false, false, true, true, false]);
    expect(book.lastEventId).toBe("e2-1");
  });

  it("may have dashes in their epoch", () => {
    const book = new Book();
    book.readFrom("2026-01-02T03:04:05Z-7");
    expect(book.isNew("2026-01-02T03:04:05Z-7")).toBe(false);
    expect(book.isNew("2026-01-02T03:04:05Z-8")).toBe(true);
    expect(book.lastEventId).toBe("2026-01-02T03:04:05Z-8");
  });

  it("of another kind are let through and not kept", () => {
    const book = new Book();
    expect([book.isNew("strange"), book.isNew("strange"), book.lastEventId]).toEqual([true, true, ""]);
  });

  it("are forgotten by whoever begins anew", () => {
    const book = new Book();
    book.readFrom("e1-9");
    book.readFrom("");
    expect(book.lastEventId).toBe("");
  });
});
