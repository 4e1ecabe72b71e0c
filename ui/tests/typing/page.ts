/** A page that uses the client as it is served: checked against the built types, never run. */
import { CODES, NoetlClient, NoetlError, type Progress, type Running, type User } from "/client/noetl-client.js";

export async function page(): Promise<void> {
  const client: NoetlClient = new NoetlClient({ baseUrl: "https://example.com", getToken: () => "t", transport: "auto" });
  await client.connect();
  const user: User = await client.login("ann@example.com", "password");
  const onProgress = (told: Progress): void => console.log(told.step, told.progress);
  const total = await client.executePlaybookAsync<{ total: number }>("a/b", { day: user.user_id }, { onProgress });
  const running: Running<number> = await client.executePlaybook<number>("a/b", {}, { timeoutMs: 1, timeoutSecs: total.total });
  const value: number = await running.result;
  const end: () => void = client.on("playbook/result", ({ requestId, status }) => console.log(requestId, status, value));
  end();
  const stop = await client.subscribe([running.executionId], ["state", "logs"], ({ channel }) => console.log(channel));
  await stop();
  try {
    await client.cancel(running.requestId);
  } catch (error) {
    if (error instanceof NoetlError && error.code === CODES.forbidden) console.log(error.data, error.requestId);
  }
  // @ts-expect-error - ids are strings
  await client.request(1);
  // @ts-expect-error - there is no such event
  client.on("playbook/none", () => undefined);
  // @ts-expect-error - there is no such transport
  new NoetlClient({ transport: "carrier-pigeon" });
}
