import type { Failure } from "./types";

/** The codes that a failure can have. */
export const CODES = {
  invalidParams: -32602,
  internal: -32603,
  playbookFailed: -32000,
  timeout: -32001,
  unauthorized: -32002,
  forbidden: -32003,
  cancelled: -32004,
  rateLimited: -32005,
  tooLarge: -32006,
  unavailable: -32007,
  notFound: -32008,
} as const;

/** Why there is no result. */
export class NoetlError extends Error {
  override readonly name = "NoetlError";
  readonly code: number;
  readonly data: unknown;
  readonly requestId: string | undefined;
  readonly executionId: string | undefined;

  constructor(failure: Failure, ids: { requestId?: string; executionId?: string } = {}) {
    super(failure.message);
    this.code = failure.code;
    this.data = failure.data;
    this.requestId = ids.requestId;
    this.executionId = ids.executionId;
  }
}

const OF_STATUS: Record<number, number> = {
  400: CODES.invalidParams,
  401: CODES.unauthorized,
  403: CODES.forbidden,
  404: CODES.notFound,
  409: CODES.invalidParams,
  410: CODES.notFound,
  413: CODES.tooLarge,
  422: CODES.invalidParams,
  429: CODES.rateLimited,
  502: CODES.unavailable,
  503: CODES.unavailable,
  504: CODES.unavailable,
};

/** The error that an answer is: a JSON-RPC one as it stands, a problem body under the code of its status. */
export async function errorOf(answer: Response): Promise<NoetlError> {
  const body = (await answer.json().catch(() => null)) as Record<string, unknown> | null;
  const told = body?.["error"] as Failure | undefined;
  if (told && typeof told.code === "number") return new NoetlError(told);
  const retryAfter = Number(answer.headers.get("retry-after")) || undefined;
  return new NoetlError({
    code: OF_STATUS[answer.status] ?? CODES.internal,
    message: String(body?.["detail"] ?? body?.["title"] ?? `status ${answer.status}`),
    data: { status: answer.status, code: body?.["code"], requestId: body?.["request_id"], retryAfter },
  });
}

/** The gateway could not be reached, or did not answer. */
export function unreachable(why: string): NoetlError {
  return new NoetlError({ code: CODES.unavailable, message: why });
}
