//! Proof from outside: the real daemon, a real socket, a scripted model server. Names carry the ids of the cases.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails; helpers of tests too")]

mod calls;
mod crash;
mod plan_approval;
mod plan_crash;
mod plan_gate;
mod plan_modes;
mod tool_approval;
