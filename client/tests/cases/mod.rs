//! Cases by subject, of the same test program as `agentctl.rs`.

mod answering;
mod called;
mod listing;
mod watching;
