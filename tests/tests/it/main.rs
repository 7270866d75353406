//! Proof from outside: the real daemon, a real socket, a scripted model server. Names carry the ids of the cases.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails; helpers of tests too")]

mod auto;
mod bad_input;
mod calls;
mod cases;
mod changes;
mod clients;
mod crash;
mod feed;
mod full_disk;
mod ids;
mod index;
mod look;
mod moves;
mod order;
mod plan_approval;
mod plan_crash;
mod plan_gate;
mod plan_modes;
mod providers;
mod returning;
mod rules;
mod service;
mod settings;
mod storage;
mod taking_back;
mod tool_approval;
mod trust;
