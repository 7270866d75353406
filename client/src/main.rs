//! agentctl: the commands on top of the client library. `cli` says what they do, `render` how it looks.

mod cli;
mod render;

use std::process::ExitCode;

use clap::Parser;

use cli::args::Cli;
use cli::exit::{Exit, Failure};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are answers, not mistakes. A closed pipe has nobody to tell.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Finished.into() };
        }
    };
    let result = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::from)
        .and_then(|runtime| runtime.block_on(cli::dispatch(cli)));
    match result {
        Ok(exit) => exit.into(),
        // `head` has what it wanted.
        Err(failure) if failure.reader_gone => Exit::Finished.into(),
        Err(failure) => {
            let _ = cli::print_failure(&failure);
            failure.exit.into()
        }
    }
}
