// A home of its own with a daemon in it.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";

const bin = process.env.AGENTD_BIN_DIR;

export class Home {
  // The path is short: a socket's has 107 bytes.
  constructor() {
    this.root = mkdtempSync(path.join(tmpdir(), "agp"));
    for (const folder of ["run", "state", "config/agentd/keys", "cache", "project"]) {
      mkdirSync(this.path(folder), { recursive: true, mode: 0o700 });
    }
  }

  path(below) {
    return path.join(this.root, below);
  }

  get socket() {
    return this.path("run/agentd/agentd.sock");
  }

  write(below, text) {
    writeFileSync(this.path(below), text);
    chmodSync(this.path(below), 0o600);
  }

  // Starts a daemon and returns once it says that it is ready.
  async start() {
    this.daemon = spawn(path.join(bin, "agentd"), [], {
      cwd: this.root,
      env: {
        HOME: this.root,
        PATH: "/usr/local/bin:/usr/bin:/bin",
        XDG_CONFIG_HOME: this.path("config"),
        XDG_STATE_HOME: this.path("state"),
        XDG_CACHE_HOME: this.path("cache"),
        XDG_RUNTIME_DIR: this.path("run"),
      },
      stdio: ["ignore", "pipe", "inherit"],
    });
    const exited = once(this.daemon, "exit").then(([code]) => {
      throw new Error(`agentd ended with ${code} before it was ready`);
    });
    exited.catch(() => {});
    const lines = createInterface({ input: this.daemon.stdout });
    const ready = (async () => {
      for await (const line of lines) {
        if (JSON.parse(line).ready) return;
      }
      throw new Error("agentd closed its output before it was ready");
    })();
    await Promise.race([ready, exited]);
  }

  async stop() {
    if (this.daemon && this.daemon.exitCode === null && this.daemon.signalCode === null) {
      const exited = once(this.daemon, "exit");
      this.daemon.kill("SIGTERM");
      const late = setTimeout(() => this.daemon.kill("SIGKILL"), 30_000);
      await exited;
      clearTimeout(late);
    }
    rmSync(this.root, { recursive: true, force: true });
  }

  async connect() {
    const stream = net.connect(this.socket);
    await once(stream, "connect");
    return stream;
  }
}
