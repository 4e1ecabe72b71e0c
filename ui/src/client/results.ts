import type { NoetlError } from "./errors";
import type { RequestDocument, Result } from "./types";

const STATUS: Partial<Record<RequestDocument["state"], string>> = {
  completed: "COMPLETED",
  failed: "FAILED",
  rejected: "FAILED",
  timeout: "FAILED",
  cancelled: "CANCELLED",
};

/** How a request has ended, if it has. */
export function resultOf(document: RequestDocument): Result | undefined {
  const { requestId, executionId, state, result, resultRef, error } = document;
  const status = STATUS[state];
  if (!status) return undefined;
  return { requestId, executionId, status, data: result, dataRef: resultRef ?? null, error: error ?? null };
}

/** A request that nobody knows any more. */
export function missing(requestId: string, error: NoetlError): Result {
  const failure = { code: error.code, message: error.message };
  return { requestId, executionId: "", status: "FAILED", error: failure };
}
