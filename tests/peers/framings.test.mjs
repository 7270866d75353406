// Each framing of the socket, spoken by a program that nobody here wrote.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import rpc from "vscode-jsonrpc/node";
import { WebSocket } from "ws";
import { Home } from "./lib/home.mjs";

const home = new Home();
before(() => home.start());
after(() => home.stop());

const clientInfo = { name: "peers", version: "1", actor: "person" };
const initialize = { protocolVersion: 1, clientInfo, capabilities: {} };
const request = (id, method, params) => JSON.stringify({ jsonrpc: "2.0", id, method, params });

test("one JSON text a line, by netcat", async (t) => {
  const nc = spawn("nc", ["-U", home.socket], { stdio: ["pipe", "pipe", "inherit"] });
  t.after(() => nc.kill());
  const answers = createInterface({ input: nc.stdout })[Symbol.asyncIterator]();
  const ask = async (text) => {
    nc.stdin.write(`${text}\n`);
    return JSON.parse((await answers.next()).value);
  };
  assert.equal((await ask(request(1, "initialize", initialize))).result.serverInfo.name, "agentd");
  assert.equal((await ask(request("two", "daemon/status", {}))).id, "two");
  assert.equal((await ask(request(3, "no/such", {}))).error.code, -32601);
  assert.equal((await ask("{ not json")).error.code, -32700);
  assert.equal((await ask(request(5, "daemon/status", {}))).id, 5, "the connection outlives a malformed line");
});

test("a script's one question by netcat, then end of file", async () => {
  const nc = spawn("nc", ["-N", "-U", home.socket], { stdio: ["pipe", "pipe", "inherit"] });
  const exited = once(nc, "exit");
  nc.stdin.end(`${request(1, "session/list", {})}\n`);
  let said = "";
  for await (const chunk of nc.stdout) said += chunk;
  await exited;
  assert.deepEqual(JSON.parse(said).result.sessions, []);
});

test("LSP headers, by vscode-jsonrpc", async (t) => {
  const stream = await home.connect();
  const connection = rpc.createMessageConnection(
    new rpc.SocketMessageReader(stream),
    new rpc.SocketMessageWriter(stream),
  );
  t.after(() => {
    connection.dispose();
    stream.destroy();
  });
  const synced = new Promise((resolve) => {
    connection.onNotification("events/event", ({ result }) => result.type === "synced" && resolve(result));
  });
  connection.listen();
  assert.equal((await connection.sendRequest("initialize", initialize)).serverInfo.name, "agentd");
  const status = await connection.sendRequest("daemon/status", {});
  assert.equal(status.pid, home.daemon.pid);
  await assert.rejects(connection.sendRequest("no/such", {}), { code: -32601 });
  await connection.sendRequest("events/subscribe", {});
  assert.equal((await synced).type, "synced");
});

test("WebSocket messages, by ws", async (t) => {
  const socket = new WebSocket(`ws+unix:${home.socket}:/`);
  t.after(() => socket.terminate());
  await once(socket, "open");
  const ask = async (text) => {
    const answered = once(socket, "message");
    socket.send(text);
    return JSON.parse((await answered)[0]);
  };
  assert.equal((await ask(request(1, "initialize", initialize))).result.serverInfo.name, "agentd");
  assert.equal((await ask(request(2, "daemon/status", {}))).result.pid, home.daemon.pid);
  assert.equal((await ask("[]")).id, null);
  const closed = once(socket, "close");
  socket.close(1000);
  assert.equal((await closed)[0], 1000);
});
