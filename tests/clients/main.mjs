/** A client on tour: `node main.mjs '{"sdk": "2", "mode": "auto", "url": …}'`; its last line is what it saw. */

import { Hand } from "./hand.mjs";
import { tour } from "./tour.mjs";
import { Version1 } from "./version1.mjs";
import { Version2 } from "./version2.mjs";

const { sdk, mode, ...place } = JSON.parse(process.argv[2]);
const client = sdk === "1" ? new Version1() : new Version2(mode);
const hand = new Hand();
try {
  await client.connect(place);
  hand.tell({ seen: await tour(client, hand) });
} finally {
  await client.close();
  hand.close();
}
