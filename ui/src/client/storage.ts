import type { Storage } from "./types";

/** The tab's own, or memory where there is none. */
export function storageHere(): Storage {
  try {
    if (globalThis.sessionStorage) return globalThis.sessionStorage;
  } catch {
    // a page in a sandbox has none
  }
  const kept = new Map<string, string>();
  return {
    getItem: (key) => kept.get(key) ?? null,
    setItem: (key, value) => void kept.set(key, value),
    removeItem: (key) => void kept.delete(key),
  };
}
