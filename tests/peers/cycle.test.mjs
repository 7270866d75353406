// The whole cycle on a copy of this project's own repository, against a model server that nobody here wrote.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, existsSync, readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { Home } from "./lib/home.mjs";
import { Line } from "./lib/line.mjs";
import { PLAN, startModel } from "./lib/model.mjs";

const repository = path.resolve(import.meta.dirname, "../..");
const git = (...args) => execFileSync("git", ["-C", repository, ...args], { encoding: "utf8" });

function copyRepository(to) {
  // Also what is not committed yet, so that a change can be tried before its commit.
  const listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard");
  const files = listed.split("\0").filter((file) => file && existsSync(path.join(repository, file)));
  for (const file of files) cpSync(path.join(repository, file), path.join(to, file), { verbatimSymlinks: true });
  return files;
}

function digests(root, files) {
  return Object.fromEntries(
    files.map((file) => [file, createHash("sha256").update(readFileSync(path.join(root, file))).digest("hex")]),
  );
}

for (const { dialect, base } of [
  { dialect: "openai-chat", base: (url) => `${url}/v1` },
  { dialect: "anthropic", base: (url) => url },
]) {
  test(`plan, approve and carry out over ${dialect}`, async (t) => {
    const home = new Home();
    t.after(() => home.stop());
    const model = await startModel();
    t.after(() => model.stop());
    home.write(
      "config/agentd/config.toml",
      `model = "peer/some-model"\n\n[providers.peer]\ndialect = "${dialect}"\nbase_url = "${base(model.url)}"\n`,
    );
    home.write("config/agentd/keys/peer", "not-a-key\n");
    await home.start();

    const project = home.path("project");
    const files = copyRepository(project);
    const before = digests(project, files);

    const [line, second] = [new Line(await home.connect()), new Line(await home.connect())];
    t.after(() => [line, second].forEach((client) => client.close()));
    const { sessionId } = await line.call("session/new", { cwd: project, mode: "plan", title: "Peers" });
    for (const client of [line, second]) {
      await client.call("events/subscribe", { sessionId, afterSeq: 0, deltas: true });
    }
    await line.call("session/prompt", { sessionId, content: [{ type: "text", text: "Say in the README who reads it." }] });

    const [approval, same] = await Promise.all(
      [line, second].map((client) =>
        Promise.race([
          client.event((event) => event.type === "approvalRequested"),
          client.event((event) => event.type === "turnFinished").then((event) => {
            throw new Error(`the turn ended without an approval: ${JSON.stringify(event)}`);
          }),
        ]),
      ),
    );
    assert.equal(approval.kind, "plan");
    assert.equal(approval.plan.content, PLAN);
    assert.equal(same.approvalId, approval.approvalId);
    assert.deepEqual(approval.choices.map(({ id }) => id).sort(), [
      "clearAndExecute",
      "execute",
      "keepPlanning",
      "manualExecute",
    ]);
    assert.deepEqual(digests(project, files), before, "something changed before the approval");
    assert.ok(!existsSync(path.join(project, "FORBIDDEN.md")));
    const refused = line.seen.filter((event) => event.type === "permissionDecided" && event.decision === "deny");
    assert.deepEqual(refused.map(({ reason }) => reason), ["plan.write"]);

    const { approvalId, digest, plan } = approval;
    const answer = await second.call("approval/respond", { approvalId, choice: "execute", digest, revision: plan.revision });
    assert.equal(answer.modeNow, "acceptEdits");

    const finished = await line.event((event) => event.type === "turnFinished");
    assert.equal(finished.outcome, "finished", JSON.stringify(finished));
    const after = digests(project, files);
    const changed = files.filter((file) => after[file] !== before[file]);
    assert.deepEqual(changed, ["README.md"]);
    assert.match(readFileSync(path.join(project, "README.md"), "utf8"), /^# agentd, read by peers\n/);
    assert.equal(readFileSync(path.join(project, "PEERS.md"), "utf8"), "# Peers\n");

    // The limit cost one request, and every reply was asked for once.
    const statuses = model.getRequests().map(({ response }) => response.status);
    assert.deepEqual(statuses, [429, 200, 200, 200, 200, 200]);
  });
}
