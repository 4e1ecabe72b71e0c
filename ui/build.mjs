// Builds the pages of the gateway: the client as one ES module with its types, and the playground.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const target = join(here, "..", "src", "noetl", "gateway", "static");
const MOST_CLIENT_BYTES = 20 * 1024;

const shared = { bundle: true, minify: true, format: "esm", target: "es2022", write: false, absWorkingDir: here, logLevel: "warning" };

async function made(options) {
  const { outputFiles } = await build({ ...shared, ...options });
  return Buffer.from(outputFiles[0].contents);
}

/** One file of types: each module's own, without what ties the modules together. */
function types() {
  const folder = mkdtempSync(join(here, "node_modules", ".types-"));
  try {
    const tsc = join(here, "node_modules", "typescript", "bin", "tsc");
    execFileSync(process.execPath, [tsc, "-p", join(here, "tsconfig.client.json"), "--outDir", folder], { stdio: "inherit" });
    const texts = ["types", "errors", "client"].map((name) => readFileSync(join(folder, `${name}.d.ts`), "utf8"));
    const lines = texts.join("\n").replace(/^import [\s\S]*?;\n/gm, "").replace(/^export \{\};\n/gm, "");
    return `/** The browser client of a NoETL gateway; works in Node 20 and newer, too. */\n${lines}`;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function named(name, contents) {
  const digest = createHash("sha256").update(contents).digest("hex").slice(0, 12);
  return name.replace(".", `-${digest}.`);
}

const client = await made({ entryPoints: ["src/client/noetl-client.ts"] });
if (client.length > MOST_CLIENT_BYTES) throw new Error(`noetl-client.js has ${client.length} bytes`);
const script = await made({ entryPoints: ["src/demo/main.ts"], external: ["/client/noetl-client.js"] });
const style = await made({ entryPoints: ["src/demo/style.css"] });
const scriptName = named("app.js", script);
const styleName = named("app.css", style);
const page = readFileSync(join(here, "src", "demo", "index.html"), "utf8")
  .replace("app.js", scriptName)
  .replace("app.css", styleName);

// All or nothing: a gateway that starts meanwhile finds the old pages or the new ones.
const next = `${target}.next`;
rmSync(next, { recursive: true, force: true });
for (const folder of ["client", "ui"]) mkdirSync(join(next, folder), { recursive: true });
writeFileSync(join(next, "client", "noetl-client.js"), client);
writeFileSync(join(next, "client", "noetl-client.d.ts"), types());
writeFileSync(join(next, "ui", scriptName), script);
writeFileSync(join(next, "ui", styleName), style);
writeFileSync(join(next, "index.html"), page);
rmSync(target, { recursive: true, force: true });
renameSync(next, target);
console.log(`noetl-client.js: ${client.length} bytes; ${scriptName}: ${script.length}; ${styleName}: ${style.length}`);
