/** The client of the TypeScript SDK 2.x, which knows both eras. */

import { Client, StreamableHTTPClientTransport as Http } from "@modelcontextprotocol/client";
import { StdioClientTransport as Stdio } from "@modelcontextprotocol/client/stdio";

import { TOLD_ANYWAY, TypeScriptClient, able } from "./typescript.mjs";

export class Version2 extends TypeScriptClient {
  /** The mode is `legacy`, `auto`, or a version that is asked for without another to fall back to. */
  constructor(mode, answer) {
    const pinned = mode !== "legacy" && mode !== "auto";
    const versionNegotiation = { mode: pinned ? { pin: mode } : mode };
    const options = { versionNegotiation, ...able(answer) };
    super(new Client({ name: "tour-2", version: "1" }, options), { Http, Stdio }, answer);
    if (answer) this.client.setRequestHandler("elicitation/create", (request) => this.answer(request));
    this.client.setNotificationHandler("notifications/tools/list_changed", () => this.notices.take());
  }

  get version() {
    return this.client.getNegotiatedProtocolVersion();
  }

  async call(name, args, options) {
    return this.client.callTool({ name, arguments: args }, options);
  }

  async listen() {
    if (this.client.getProtocolEra() === "legacy") return TOLD_ANYWAY;
    return this.client.listen({ toolsListChanged: true });
  }
}
