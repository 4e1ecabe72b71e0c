/**
 * Which client a tab is. A closed tab leaves its id behind, and the next one that is opened takes it
 * over, with the requests that it still waits for. A lock says whose tab is still open.
 */
import type { Storage } from "/client/noetl-client.js";

const TAB = "noetl:tab";
const FORGOTTEN_MS = 30 * 60_000;
const RELOAD_MS = 500;

export async function tabStorage(): Promise<Storage> {
  if (!navigator.locks) return sessionStorage;
  const own = sessionStorage.getItem(TAB);
  // A page that is loaded again may begin before the old one has let go.
  if (own && (await isTaken(own, { signal: AbortSignal.timeout(RELOAD_MS) }))) return kept(own);
  for (const left of leftBehind()) {
    if (await isTaken(left, { ifAvailable: true })) return kept(left);
  }
  const made = Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, "0"));
  const fresh = made.join("");
  await isTaken(fresh, { ifAvailable: true });
  return kept(fresh);
}

/** Take a tab's lock and hold it as long as this page lives. */
function isTaken(tab: string, options: LockOptions): Promise<boolean> {
  return new Promise((resolve) => {
    const held = (lock: Lock | null) => {
      resolve(lock !== null);
      return lock ? new Promise<void>(() => undefined) : undefined;
    };
    navigator.locks.request(`${TAB}:${tab}`, options, held).catch(() => resolve(false));
  });
}

function leftBehind(): string[] {
  const found: string[] = [];
  for (const key of Object.keys(localStorage)) {
    const [, tab] = /^noetl:tab:(\w+):seen$/.exec(key) ?? [];
    if (!tab) continue;
    if (Date.now() - Number(localStorage.getItem(key)) < FORGOTTEN_MS) found.push(tab);
    else Object.keys(localStorage).filter((one) => one.startsWith(`${TAB}:${tab}:`)).forEach((one) => localStorage.removeItem(one));
  }
  return found;
}

/** Ids of clients and of events, no secrets: the gateway gives nothing for them without the session. */
function kept(tab: string): Storage {
  sessionStorage.setItem(TAB, tab);
  const key = (name: string) => `${TAB}:${tab}:${name}`;
  const seen = () => localStorage.setItem(key("seen"), String(Date.now()));
  seen();
  addEventListener("pagehide", seen);
  return {
    getItem: (name) => localStorage.getItem(key(name)),
    setItem: (name, value) => localStorage.setItem(key(name), value),
    removeItem: (name) => localStorage.removeItem(key(name)),
  };
}
