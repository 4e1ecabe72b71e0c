/** The playground: signs in, runs a playbook, and shows what the gateway says until the result is there. */
import { NoetlClient, NoetlError, type Pending, type StateChange, type User } from "/client/noetl-client.js";
import { begun, changed, completed, failed, progressed, type Run } from "./runs";
import { tabStorage } from "./tabs";
import { part, showAlert, showBadge, showFrame, showPaths, showRun, showView } from "./view";

const EXECUTE = `mutation Run($name: String!, $variables: JSON, $clientId: String, $timeoutSecs: Int) {
  executePlaybook(name: $name, variables: $variables, clientId: $clientId, timeoutSecs: $timeoutSecs) {
    requestId executionId status
  }
}`;
const PLAYBOOKS = `{ playbooks(first: 50) { items { path } } }`;

const MOST_STATES = 200;

const runs = new Map<string, Run>();
/** The last ones, for runs whose start is not answered yet. */
const states: StateChange[] = [];
const client = new NoetlClient({ storage: await tabStorage(), onState: showBadge });

client.on("frame", showFrame);
client.on("unauthorized", () => showView(undefined));
client.on("init", (init) => init.pendingRequests.forEach(follow));
client.on("playbook/result", ({ requestId }) => {
  // One that ended while no page was open, or whose start is not answered yet.
  if (!runs.has(requestId)) void client.request(requestId).then(follow, (error: Error) => showAlert(error.message));
});
client.on("playbook/state", (told) => {
  states.push(told);
  if (states.length > MOST_STATES) states.shift();
  const run = [...runs.values()].find((one) => one.executionId === told.executionId);
  if (run) put(changed(run, told));
});

function put(run: Run): void {
  runs.set(run.requestId, run);
  const cancel = () => client.cancel(run.requestId).catch((error: NoetlError) => showAlert(error.message));
  showRun(run, () => void cancel());
}

/** Show a request until it has ended; the server's deadline ends every one. */
function follow(pending: Omit<Pending, "deadline">): void {
  const id = pending.requestId;
  if (runs.has(id)) return;
  const before = states.filter((one) => one.executionId === pending.executionId);
  put(before.reduce(changed, begun(pending)));
  const now = () => runs.get(id) as Run;
  const { result } = client.follow(id, pending.executionId, {
    timeoutMs: 0,
    onProgress: (told) => put(progressed(now(), told)),
  });
  result.then(
    (data) => put(completed(now(), data)),
    (error: unknown) => put(failed(now(), error)),
  );
}

async function run(form: FormData): Promise<void> {
  const name = String(form.get("path")).trim();
  const variables = JSON.parse(String(form.get("variables")).trim() || "{}") as unknown;
  if (typeof variables !== "object" || variables === null || Array.isArray(variables)) {
    throw new Error("the variables are not an object");
  }
  await client.connect();
  const timeoutSecs = Number(form.get("deadline"));
  const asked = { name, variables, clientId: client.clientId, timeoutSecs };
  type Told = { executePlaybook: { requestId: string; executionId: string } };
  const { executePlaybook } = await client.graphql<Told>(EXECUTE, asked);
  follow({ ...executePlaybook, playbookPath: name });
}

async function enter(person: User): Promise<void> {
  showView(person);
  await client.connect();
  type Told = { playbooks: { items: { path: string }[] } };
  showPaths((await client.graphql<Told>(PLAYBOOKS)).playbooks.items.map(({ path }) => path));
}

async function offerProviders(): Promise<void> {
  const contract = (await (await fetch("/api/runtime/contract")).json()) as Contract;
  const buttons = contract.providers.map(({ name }) => {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: `Sign in with ${name}` });
    button.addEventListener("click", () => client.loginWithRedirect(name, "/"));
    return button;
  });
  part("#providers").replaceChildren(...buttons);
}

interface Contract {
  providers: { name: string }[];
}

/** Do what a form asks for; what goes wrong is said. */
function onSubmit(selector: string, act: (form: FormData) => Promise<void>): void {
  part<HTMLFormElement>(selector).addEventListener("submit", (event) => {
    event.preventDefault();
    showAlert("");
    const form = new FormData(event.currentTarget as HTMLFormElement);
    act(form).catch((error: Error) => showAlert(error.message));
  });
}

onSubmit("#run", run);
onSubmit("#login", async (form) => {
  const person = await client.login(String(form.get("email")), String(form.get("password")));
  part<HTMLFormElement>("#login").reset();
  history.replaceState(null, "", "/");
  await enter(person);
});
part("#leave").addEventListener("click", () => {
  void client.logout().then(() => location.assign("/login"), (error: Error) => showAlert(error.message));
});

if (location.pathname === "/login") {
  showView(undefined);
  await offerProviders();
} else {
  await client.whoami().then(enter, (error: Error) => showAlert(error.message));
}
