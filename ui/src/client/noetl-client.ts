/** The browser client of a NoETL gateway; works in Node 20 and newer, too. */
export { NoetlClient } from "./client";
export { CODES, NoetlError } from "./errors";
export type * from "./types";
