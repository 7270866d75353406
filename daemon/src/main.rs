//! The binary: what has to happen before anything else, arguments, exit codes.

use std::process::ExitCode;

use agentd::process::helper;
use agentd::start;

fn main() -> ExitCode {
    // A helper is entered before any thread exists: it forks.
    if helper::is_called() {
        return helper::main();
    }
    start::harden();
    start::main()
}
