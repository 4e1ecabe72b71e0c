/** One server-sent event. */
export interface Sent {
  event: string;
  id: string | undefined;
  data: string;
}

/** Reads server-sent events from text that comes in any pieces. */
export class EventStream {
  #rest = "";

  push(text: string): Sent[] {
    // A break may be cut in two: a last "\r" waits for what follows.
    let whole = this.#rest + text;
    const held = whole.endsWith("\r") ? "\r" : "";
    whole = whole.slice(0, whole.length - held.length).replace(/\r\n?/g, "\n");
    const blocks = whole.split("\n\n");
    this.#rest = blocks.pop() + held;
    return blocks.map(sentOf).filter((one) => one !== undefined);
  }
}

function sentOf(block: string): Sent | undefined {
  let event = "message";
  let id: string | undefined;
  const data: string[] = [];
  for (const line of block.split("\n")) {
    const at = line.indexOf(":");
    const name = at < 0 ? line : line.slice(0, at);
    const value = at < 0 ? "" : line.slice(line[at + 1] === " " ? at + 2 : at + 1);
    if (name === "event") event = value;
    else if (name === "id") id = value;
    else if (name === "data") data.push(value);
  }
  return data.length ? { event, id, data: data.join("\n") } : undefined;
}
