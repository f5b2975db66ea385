/**
 * A client on tour: `node main.mjs '{"sdk": "2", "mode": "auto", "url": …}'`; its last line is what it saw.
 *
 * With a `change`, it only makes that call, whose questions its person answers with `answer`.
 */

import { Hand } from "./hand.mjs";
import { tour } from "./tour.mjs";
import { Version1 } from "./version1.mjs";
import { Version2 } from "./version2.mjs";

const { sdk, mode, change, answer, ...place } = JSON.parse(process.argv[2]);
const client = sdk === "1" ? new Version1(answer) : new Version2(mode, answer);
const hand = new Hand();
try {
  await client.connect(place);
  hand.tell({ seen: await (change ? makeChange() : tour(client, hand)) });
} finally {
  await client.close();
  hand.close();
}

async function makeChange() {
  const { isError, structuredContent, content } = await client.call(change.name, change.arguments);
  return { questions: client.questions, isError: isError ?? false, structuredContent, text: content[0].text };
}
