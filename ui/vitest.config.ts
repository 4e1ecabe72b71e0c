import { defineConfig } from "vitest/config";
import { fileURLToPath } from "node:url";

const source = fileURLToPath(new URL("./src/client/noetl-client.ts", import.meta.url));

export default defineConfig({
  resolve: { alias: { "/client/noetl-client.js": source } },
  test: { include: ["tests/**/*.test.ts"], testTimeout: 10_000, cache: false },
});
