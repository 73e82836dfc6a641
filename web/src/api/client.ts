// The typed client of the platform's API. Types come from openapi.json; failures carry the server's sentence.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];
export type Task = Schemas["TaskInfo"];
export type TaskState = Schemas["TaskStatus"];
export type Entry = Schemas["EntryInfo"];
export type Me = Schemas["Me"];

export class ApiError extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly requestId: string | null,
  ) {
    super(message);
    this.name = "ApiError";
  }
  get isGone() {
    return this.status === 404 || this.status === 410;
  }
  get isForbidden() {
    return this.status === 403;
  }
}

export const UNREACHABLE = "The server does not answer. Is it running?";
type Listener = () => void;
const loggedOut = new Set<Listener>();

/** Called when the server says that this browser is not logged in (any more). */
export function onLoggedOut(listener: Listener): () => void {
  loggedOut.add(listener);
  return () => loggedOut.delete(listener);
}

export async function send(input: Request | string, init?: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(input, init);
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(UNREACHABLE, 0, null);
  }
  if (!response.ok) throw await failure(response);
  return response;
}

async function failure(response: Response): Promise<ApiError> {
  const body = await response.text().catch(() => "");
  let message = `The server answered ${response.status}.`;
  try {
    const found = JSON.parse(body) as { message?: unknown; detail?: unknown };
    if (typeof found.message === "string") message = sentence(found.message);
    else if (typeof found.detail === "string") message = sentence(found.detail);
  } catch {
    if (response.status === 502 || response.status === 504) message = UNREACHABLE;
  }
  if (response.status === 401) loggedOut.forEach((tell) => tell());
  return new ApiError(message, response.status, response.headers.get("x-request-id"));
}

function sentence(text: string): string {
  const trimmed = text.trim();
  const ended = /[.!?]$/.test(trimmed) ? trimmed : `${trimmed}.`;
  return ended.charAt(0).toUpperCase() + ended.slice(1);
}

const client = createClient<paths>({ baseUrl: location.origin, fetch: send });

/** The body of an answer. openapi-fetch puts failures beside data; `send` has thrown them before. */
async function data<T>(answer: Promise<{ data?: T }>): Promise<T> {
  return (await answer).data as T;
}

export const api = Object.assign(client, { data });

/** `data(api.GET(...))`, in short. */
export { data };
