// The plainest client: one JSON text a line.

import { createInterface } from "node:readline";

export class Line {
  constructor(stream) {
    this.stream = stream;
    this.nextId = 0;
    this.calls = new Map();
    this.seen = [];
    this.waiting = [];
    createInterface({ input: stream }).on("line", (text) => this.take(JSON.parse(text)));
    stream.on("close", () => {
      for (const { reject } of [...this.calls.values(), ...this.waiting]) {
        reject(new Error("the daemon closed the connection"));
      }
    });
  }

  take(message) {
    if (message.method) {
      const event = message.params.result;
      this.seen.push(event);
      this.waiting = this.waiting.filter(({ wanted, resolve }) => !(wanted(event) && (resolve(event), true)));
      return;
    }
    const call = this.calls.get(message.id);
    this.calls.delete(message.id);
    if (message.error) call.reject(Object.assign(new Error(message.error.message), message.error));
    else call.resolve(message.result);
  }

  call(method, params) {
    const id = ++this.nextId;
    this.stream.write(JSON.stringify({ jsonrpc: "2.0", id, method, params }) + "\n");
    return new Promise((resolve, reject) => this.calls.set(id, { resolve, reject }));
  }

  // The first event, past or to come, for which `wanted` holds.
  event(wanted) {
    const found = this.seen.find(wanted);
    if (found) return Promise.resolve(found);
    return new Promise((resolve, reject) => this.waiting.push({ wanted, resolve, reject }));
  }

  close() {
    this.stream.destroy();
  }
}
