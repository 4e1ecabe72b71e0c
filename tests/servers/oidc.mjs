// An OpenID provider that others have written, on a free port of this machine, for one client.
//
//   node oidc.mjs '{"client_id": ..., "client_secret": ..., "redirect_uris": [...], "person": {...}}'
//
// Its own pages ask who signs in, and for consent; whoever names himself is let in.
import { generateKeyPairSync } from "node:crypto";
import { createServer } from "node:http";
import { createRequire } from "node:module";

const ui = createRequire(new URL("../../ui/package.json", import.meta.url));
const { Provider } = await import(ui.resolve("oidc-provider"));
const { person, ...client } = JSON.parse(process.argv[2]);
const key = generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey;

const server = createServer();
await new Promise((heard) => server.listen(0, "127.0.0.1", heard));
const url = `http://127.0.0.1:${server.address().port}`;
const provider = new Provider(url, {
  clients: [client],
  jwks: { keys: [{ ...key.export({ format: "jwk" }), use: "sig", alg: "RS256" }] },
  cookies: { keys: ["of-a-test"] },
  claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["name", "groups"] },
  conformIdTokenClaims: false, // as most providers have it: the ID token tells who it is
  findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ sub, ...person }) }),
});
server.on("request", provider.callback());
console.log(url);
