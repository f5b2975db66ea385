/** What the clients of both TypeScript SDKs have in common. A place in, the client of a tour out. */

import { Notices } from "./notices.mjs";

/** What a client of the handshake has for a subscription: it is told of changes on its connection. */
export const TOLD_ANYWAY = { async close() {} };

export class TypeScriptClient {
  notices = new Notices();

  /** Take the *client* of an SDK and its classes of transports. */
  constructor(client, { Http, Stdio }) {
    this.client = client;
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
