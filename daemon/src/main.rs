//! The binary: so far only the helper that processes run under.

use std::process::ExitCode;

use agentd::process::helper;

fn main() -> ExitCode {
    // Before any thread exists.
    if helper::is_called() {
        return helper::main();
    }
    ExitCode::SUCCESS
}
