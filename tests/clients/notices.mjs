/** Notices of changed tools, as they come in. */
export class Notices {
  #unheard = 0;
  #wake = () => {};

  /** Take one that has come. */
  take() {
    this.#unheard += 1;
    this.#wake();
  }

  /** Wait for one that has not been heard yet. */
  async next() {
    while (this.#unheard === 0) {
      await new Promise((resolve) => {
        this.#wake = resolve;
      });
    }
    this.#unheard -= 1;
  }
}
