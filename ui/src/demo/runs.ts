import { NoetlError, type Pending, type Progress, type StateChange } from "/client/noetl-client.js";

/** A run as the playground shows it. */
export interface Run {
  readonly requestId: string;
  readonly executionId: string;
  readonly path: string;
  readonly state: "running" | "completed" | "failed" | "cancelled";
  readonly progress: number | null;
  readonly message: string;
  readonly steps: readonly string[];
  /** How many results came: one, and never another. */
  readonly results: number;
  readonly text: string;
}

const MOST_STEPS = 200;
const MOST_SHOWN = 200_000;
const CANCELLED = -32004;

export function begun({ requestId, executionId, playbookPath }: Omit<Pending, "deadline">): Run {
  const told = { state: "running", progress: null, message: "", steps: [], results: 0, text: "" } as const;
  return { requestId, executionId, path: playbookPath, ...told };
}

export function progressed(run: Run, { step, message, progress }: Progress): Run {
  const words = [step, message].filter(Boolean).join(": ");
  return { ...run, message: words || run.message, progress: progress ?? run.progress };
}

export function changed(run: Run, { eventType, stepName, status }: StateChange): Run {
  const words = [stepName, eventType, status].filter(Boolean).join(" · ");
  return { ...run, steps: [...run.steps, words].slice(-MOST_STEPS) };
}

export function completed(run: Run, data: unknown): Run {
  const whole = JSON.stringify(data, null, 2) ?? "null";
  const cut = `${whole.slice(0, MOST_SHOWN)}\n… ${whole.length} characters in all`;
  const text = whole.length > MOST_SHOWN ? cut : whole;
  return { ...run, state: "completed", progress: 1, results: run.results + 1, text };
}

export function failed(run: Run, error: unknown): Run {
  const { code, message, data } =
    error instanceof NoetlError ? error : { code: 0, message: String(error), data: undefined };
  const text = JSON.stringify({ code, message, data }, null, 2);
  const state = code === CANCELLED ? "cancelled" : "failed";
  return { ...run, state, results: run.results + 1, text, message: `${code} ${message}` };
}
