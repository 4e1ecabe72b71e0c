// Posts what is written in the page to /graphql, with the session of the browser.
"use strict";

const KINDS = "kind name ofType { kind name ofType { kind name ofType { kind name } } }";
const SCHEMA = `{ __schema { types { kind name description
  fields { name description args { name defaultValue type { ${KINDS} } } type { ${KINDS} } }
  inputFields { name defaultValue type { ${KINDS} } }
  enumValues { name } } } }`;

const place = (id) => document.getElementById(id);

function typeOf(type) {
  if (type.kind === "NON_NULL") return `${typeOf(type.ofType)}!`;
  if (type.kind === "LIST") return `[${typeOf(type.ofType)}]`;
  return type.name;
}

function valueOf(value) {
  const usual = value.defaultValue === null ? "" : ` = ${value.defaultValue}`;
  return `${value.name}: ${typeOf(value.type)}${usual}`;
}

function fieldOf(field) {
  const args = field.args.length ? `(${field.args.map(valueOf).join(", ")})` : "";
  return `  ${field.name}${args}: ${typeOf(field.type)}`;
}

function shown(type) {
  if (type.kind === "ENUM") return `enum ${type.name} { ${type.enumValues.map((one) => one.name).join(" ")} }`;
  if (type.kind === "INPUT_OBJECT") return `input ${type.name} {\n${type.inputFields.map((one) => `  ${valueOf(one)}`).join("\n")}\n}`;
  if (type.kind === "OBJECT") return `type ${type.name} {\n${type.fields.map(fieldOf).join("\n")}\n}`;
  return `scalar ${type.name}`;
}

async function asked(query, variables) {
  const answer = await fetch("/graphql", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ query, variables }),
  });
  return answer.json();
}

async function told(work) {
  place("answer").textContent = "…";
  try {
    place("answer").textContent = await work();
  } catch (error) {
    place("answer").textContent = String(error);
  }
}

place("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  told(async () => {
    const variables = JSON.parse(place("variables").value || "{}");
    return JSON.stringify(await asked(place("query").value, variables), null, 2);
  });
});

place("schema").addEventListener("click", () => {
  told(async () => {
    const answer = await asked(SCHEMA, {});
    if (!answer.data) return JSON.stringify(answer, null, 2);
    const types = answer.data.__schema.types.filter((one) => !one.name.startsWith("__"));
    return types.map(shown).join("\n\n");
  });
});
