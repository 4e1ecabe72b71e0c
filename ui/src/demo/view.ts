/** The page's own parts, found once and filled; text is set as text, never as markup. */
import type { Frame, State, User } from "/client/noetl-client.js";
import type { Run } from "./runs";

const MOST_FRAMES = 500;
const WORDS: Record<State, string> = {
  idle: "not connected",
  connecting: "connecting",
  open: "live",
  reconnecting: "reconnecting",
  closed: "offline",
};

export function part<T extends HTMLElement = HTMLElement>(selector: string, within: ParentNode = document): T {
  const found = within.querySelector<T>(selector);
  if (!found) throw new Error(`the page has no ${selector}`);
  return found;
}

export function showBadge(state: State): void {
  const badge = part("#badge");
  badge.dataset["state"] = state;
  badge.textContent = WORDS[state];
}

export function showAlert(text: string): void {
  const alert = part("#alert");
  alert.textContent = text;
  alert.hidden = text === "";
}

/** One of the two views; the person is somebody in the playground only. */
export function showView(person: User | undefined): void {
  part("#sign-in").hidden = person !== undefined;
  part("#playground").hidden = person === undefined;
  part("#badge").hidden = person === undefined;
  part("#leave").hidden = person === undefined;
  part("#person").hidden = person === undefined;
  part("#person").textContent = person ? (person.display_name ?? person.email ?? person.user_id) : "";
  part<HTMLInputElement>(person ? "#run input" : "#login input").focus();
}

export function showPaths(paths: string[]): void {
  const options = paths.map((path) => Object.assign(document.createElement("option"), { value: path }));
  part("#paths").replaceChildren(...options);
}

export function showRun(run: Run, onCancel: () => void): void {
  const card = document.getElementById(`run-${run.requestId}`) ?? newCard(run, onCancel);
  card.dataset["state"] = run.state;
  card.dataset["results"] = String(run.results);
  part(".status", card).textContent = run.state;
  part(".message", card).textContent = run.message;
  part(".cancel", card).hidden = run.state !== "running";
  const bar = part<HTMLProgressElement>("progress", card);
  if (run.progress !== null) bar.value = run.progress;
  bar.hidden = run.state !== "running";
  const steps = run.steps.map((step) => Object.assign(document.createElement("li"), { textContent: step }));
  part(".steps", card).replaceChildren(...steps);
  part(".data", card).hidden = run.text === "";
  part(".data", card).textContent = run.text;
}

function newCard(run: Run, onCancel: () => void): HTMLElement {
  const made = part<HTMLTemplateElement>("#card").content.cloneNode(true) as DocumentFragment;
  const card = part("article", made);
  card.id = `run-${run.requestId}`;
  part("h3", card).textContent = run.path;
  part(".request", card).textContent = run.requestId;
  part(".execution", card).textContent = run.executionId;
  part(".cancel", card).addEventListener("click", onCancel);
  document.querySelector("#runs .empty")?.remove();
  part("#runs").prepend(card);
  return card;
}

export function showFrame(frame: Frame): void {
  if (frame.method === "ping") return;
  const list = part("#frames ol");
  const line = document.createElement("li");
  line.dataset["method"] = frame.method ?? "init";
  const text = JSON.stringify(frame);
  line.textContent = text.length > 2000 ? `${text.slice(0, 2000)} …` : text;
  const isAtEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
  list.append(line);
  if (list.childElementCount > MOST_FRAMES) list.firstElementChild?.remove();
  if (isAtEnd) list.scrollTop = list.scrollHeight;
}
