// What the model says in the cycle: explore side by side, write a plan, present it, carry it out. aimock speaks the
// provider's format; this only chooses the next reply from the request's messages, so it holds no state of its own.

import { LLMock } from "@copilotkit/aimock";

export const PLAN = "# Say who reads this\n\n1. Change the first line of README.md.\n2. Add PEERS.md.\n";

const call = (id, name, args) => ({ id, name, arguments: JSON.stringify(args) });

const text = (message) =>
  typeof message.content === "string"
    ? message.content
    : (message.content ?? []).map((part) => part.text ?? "").join("\n");

// The guidance of plan mode has the path on a line of its own.
function planFile(messages) {
  const found = messages.flatMap((message) => [...text(message).matchAll(/^Plan file: (.+)$/gm)]);
  if (found.length === 0) throw new Error("the request names no plan file");
  return found.at(-1)[1];
}

function reply({ messages }) {
  switch (messages.filter((message) => message.role === "assistant").length) {
    case 0:
      return {
        content: "I look around.",
        toolCalls: [
          call("c1", "list_files", { path: "." }),
          call("c2", "grep_search", { pattern: "agentd" }),
          call("c3", "read_file", { file_path: "README.md" }),
        ],
      };
    case 1:
      return {
        toolCalls: [
          call("c4", "write_file", { file_path: "FORBIDDEN.md", content: "not yet" }),
          call("c5", "write_file", { file_path: planFile(messages), content: PLAN }),
        ],
      };
    case 2:
      return { toolCalls: [call("c6", "exit_plan_mode", {})] };
    case 3: {
      const readme = messages.map(text).find((content) => content.includes("# agentd")) ?? "";
      if (!readme) throw new Error("README.md was not read");
      return {
        toolCalls: [
          call("c7", "edit_file", { file_path: "README.md", old_string: "# agentd\n", new_string: "# agentd, read by peers\n" }),
          call("c8", "write_file", { file_path: "PEERS.md", content: "# Peers\n" }),
        ],
      };
    }
    default:
      return { content: "The plan is carried out." };
  }
}

// A model server whose first request meets a limit: 429 with `Retry-After: 1`.
export async function startModel() {
  const mock = new LLMock({ port: 0 });
  mock.addFixture({ match: { predicate: () => true }, response: reply });
  await mock.start();
  mock.nextRequestError(429, { message: "slow down", type: "rate_limit_error" });
  return mock;
}
