/** The client of the TypeScript SDK 1.x, which knows the handshake only. */

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as Stdio } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport as Http } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema, ToolListChangedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";

import { TOLD_ANYWAY, TypeScriptClient, able } from "./typescript.mjs";

export class Version1 extends TypeScriptClient {
  constructor(answer) {
    super(new Client({ name: "tour-1", version: "1" }, able(answer)), { Http, Stdio: NotingStdio }, answer);
    if (answer) this.client.setRequestHandler(ElicitRequestSchema, (request) => this.answer(request));
    this.client.setNotificationHandler(ToolListChangedNotificationSchema, () => this.notices.take());
  }

  get version() {
    return this.transport.protocolVersion;
  }

  async call(name, args, options) {
    return this.client.callTool({ name, arguments: args }, undefined, options);
  }

  async listen() {
    return TOLD_ANYWAY;
  }
}

/** Notes the version that was agreed on, as the transport over HTTP does; the client keeps it nowhere. */
class NotingStdio extends Stdio {
  setProtocolVersion(version) {
    this.protocolVersion = version;
  }
}
