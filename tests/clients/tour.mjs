/**
 * What each client does with a server, step by step. A client in, what it saw out.
 *
 * A client is a TypeScriptClient (typescript.mjs) with `version`, `call` and `listen` of its own. The hand is
 * the test (places.py): it changes the database, and knows what runs there.
 */

const SCHEMA = "dbtools://schema";

/** Return what *client* sees of a server, as plain JSON. */
export async function tour(client, hand) {
  const slow = startSlowCall(client);
  const tools = await client.tools();
  const seen = {
    version: client.version,
    tools: Object.fromEntries(tools.map(kindsOfSchemas)),
    ...(await readRows(client)),
    ...(await makeMistakes(client)),
    ...(await readResources(client)),
  };
  seen.slow = await slow.stop(hand);
  seen.changes = client.told ? await followChanges(client, hand, tools) : null;
  seen.row = (await client.call("get_person", { id: 1 })).structuredContent.row;
  return seen;
}

function kindsOfSchemas({ name, inputSchema, outputSchema }) {
  return [name, [inputSchema?.type, outputSchema?.type]];
}

/** Begin a call that never ends by itself: the other steps are taken while it runs. */
function startSlowCall(client) {
  const controller = new AbortController();
  const { promise: reported, resolve: onprogress } = Promise.withResolvers();
  const ended = client.call("list_slow", {}, { signal: controller.signal, onprogress }).then(
    (result) => ({ answered: result }),
    (error) => ({ failed: controller.signal.aborted ? "aborted" : String(error) }),
  );

  async function stop(hand) {
    const first = await Promise.race([reported, ended]);
    await hand.ask("see it run");
    controller.abort();
    if (client.told) await hand.ask("see it stopped"); // without sessions only the end of a client stops it
    return { progress: [first.progress, first.total], ...(await ended) };
  }

  return { stop };
}

async function readRows(client) {
  const where = [{ column: "id", op: "gte", value: 2 }];
  const described = await client.call("describe_tables");
  const first = await client.call("list_person", { where, limit: 1 });
  const cursor = first.structuredContent.next_cursor;
  const second = await client.call("list_person", { where, limit: 1, cursor });
  return {
    described: described.structuredContent,
    pages: [first, second].map(({ structuredContent: { rows, truncated } }) => ({ rows, truncated })),
  };
}

async function makeMistakes(client) {
  const mistaken = await client.call("list_person", { order_by: ["nam"] });
  const unknown = await client.call("list_nobody").catch((error) => error);
  return {
    mistake: { isError: mistaken.isError, named: mistaken.content[0].text.includes("'nam'") },
    unknownTool: unknown.code,
  };
}

async function readResources(client) {
  const resources = await client.resources();
  const templates = await client.templates();
  const contents = await client.read(SCHEMA);
  return {
    resources: resources.map(({ uri }) => uri),
    templates: templates.map(({ uriTemplate }) => uriTemplate),
    schema: JSON.parse(contents[0].text),
  };
}

/** Return which tools are new after a table was added, and after it was dropped again. */
async function followChanges(client, hand, before) {
  const changes = [];
  const subscription = await client.listen();
  let known = namesOf(before);
  for (const change of ["add a table", "drop it"]) {
    await hand.ask(change);
    known = await nextOther(client, known);
    changes.push(known.filter((name) => !namesOf(before).includes(name)));
  }
  await subscription.close();
  return changes;
}

/** Return the names of the tools once the client was told of others than are *known*. */
async function nextOther(client, known) {
  for (;;) {
    await client.notices.next();
    const names = namesOf(await client.tools());
    if (names.join() !== known.join()) return names;
  }
}

function namesOf(tools) {
  return tools.map(({ name }) => name);
}
