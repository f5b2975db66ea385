/** What the clients of both TypeScript SDKs have in common. A place in, the client of a tour out. */

import { Notices } from "./notices.mjs";

/** What a client of the handshake has for a subscription: it is told of changes on its connection. */
export const TOLD_ANYWAY = { async close() {} };

/** The capabilities of a client whose person has an *answer* to questions. */
export function able(answer) {
  return answer ? { capabilities: { elicitation: { form: {} } } } : {};
}

export class TypeScriptClient {
  notices = new Notices();
  questions = [];

  /** Take the *client* of an SDK, its classes of transports, and what its person answers. */
  constructor(client, { Http, Stdio }, answer) {
    this.client = client;
    this.given = answer;
    this.Http = Http;
    this.Stdio = Stdio;
  }

  async connect({ url, headers, command, args, cwd }) {
    this.transport = url
      ? new this.Http(new URL(url), { requestInit: { headers } })
      : new this.Stdio({ command, args, cwd });
    await this.client.connect(this.transport);
  }

  /** Whether the server says that it tells of changes. */
  get told() {
    return this.client.getServerCapabilities().tools.listChanged;
  }

  /** Give the person's answer to a question. */
  async answer({ params }) {
    this.questions.push(params.message);
    return this.given;
  }

  async tools() {
    return (await this.client.listTools()).tools;
  }

  async resources() {
    return (await this.client.listResources()).resources;
  }

  async templates() {
    return (await this.client.listResourceTemplates()).resourceTemplates;
  }

  async read(uri) {
    return (await this.client.readResource({ uri })).contents;
  }

  async close() {
    await this.transport.terminateSession?.();
    await this.client.close();
  }
}
