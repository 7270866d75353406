//! A model server that plays a script: provider `demo`, and the model of every test.
//!
//! It speaks real HTTP on 127.0.0.1 below a random path, in both dialects: `POST v1/chat/completions` and
//! `POST v1/messages`, always streaming. What it answers depends on the request's messages alone, so a daemon that was
//! killed half-way goes on where it was. Only faults are counted.
//!
//! # A script
//!
//! ```json
//! {
//!   "values": {"plan_path": {"in": "any", "matches": "^Plan file: (.+)$", "pick": "last", "default": ""}},
//!   "rules": [
//!     {"name": "look", "when": {"answers": 0, "texts": [{"in": "prompt", "contains": "paginat"}]},
//!      "reply": {"thinking": "…", "text": "I look around.", "calls": [{"name": "list_files", "arguments": {"path": "."}}]}},
//!     {"name": "plan", "when": {"after": ["look"], "has": ["plan_path"]},
//!      "reply": {"calls": [{"name": "write_file", "arguments": {"file_path": "{{plan_path}}", "content": "# Plan"}}]}},
//!     {"name": "rest", "reply": {"text": "Done: {{result}}"}}
//!   ],
//!   "faults": [{"times": 2, "do": {"status": {"code": 429, "headers": {"retry-after": "1"}, "message": "slow down"}}}]
//! }
//! ```
//!
//! The first rule whose `when` holds answers; no rule at all is a 400 that says so. `when`: `answers` (assistant
//! messages since the newest user text), `total_answers`, `after` (the newest assistant message came from one of these
//! rules; the ids of its calls tell), `last_call`, `not_called`, `result_is_error`, `texts` (each with `in` and any of `contains`, `matches`,
//! `lacks`, `lacks_match`), `has` (values that are not empty). Places for `in`: `any`, `system`, `prompt` (newest user
//! text), `user`, `assistant` (newest), `result` (of the newest calls), `results`.
//!
//! Values are the first group of a regular expression; `{{prompt}}`, `{{result}}`, `{{model}}` and `{{answers}}` are
//! always there, `constants` of the script too. `reply`: `thinking`, `text`, `calls` (`arguments`, or `arguments_text` for what is no JSON), `usage`
//! (`input`, `output`, `cache_read`, `cache_write`; otherwise counted from bytes and from what repeats the request
//! before), `stop` (`end`, `length`, `refusal`), `pace` (`chunk`, `delay_ms`), `odd` (`no_ids`, `no_index`, `no_usage`,
//! `framing`).
//!
//! Faults, of the script for its first requests or of a rule (`times` absent: always): `status`, `cut` (`after` bytes,
//! `reset`), `hang` (`after` bytes, until released), `body` (`content_type`, `text`), `error` (`after_events`, `code`,
//! `message`).
//!
//! # For tests
//!
//! `GET log` answers every request so far as a JSON array of `{path, headers, body, rule, shared}`, where `shared` is
//! how many bytes of the body repeat the request before, cache marks not counted, and keys are hidden. `POST release`
//! lets streams that hang go on. `GET v1/models` and `GET api/tags` list the script's `models`.

mod answer;
mod script;
mod server;
mod view;
mod wire;

pub use script::{Pace, Script, ScriptError};
pub use server::{Log, Running, start, start_again};
