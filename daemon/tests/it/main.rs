//! The crate's integration tests: one binary, one module a subject.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, with the place")]

mod agreement;
mod answers;
mod floors;
mod process;
mod served;
mod shapes;
mod shutdown;
mod snapshot;
