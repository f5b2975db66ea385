/** The hand that the test lends to a client, at the other end of stdin and stdout. */

import { createInterface } from "node:readline";

export class Hand {
  #lines = createInterface({ input: process.stdin });
  #answers = this.#lines[Symbol.asyncIterator]();

  /** Have *wanted* done, and wait until it is. */
  async ask(wanted) {
    this.tell({ wanted });
    const { done } = await this.#answers.next();
    if (done) throw new Error(`nobody will ${wanted}`);
  }

  /** Write a line of JSON. */
  tell(message) {
    process.stdout.write(`${JSON.stringify(message)}\n`);
  }

  close() {
    this.#lines.close();
  }
}
