//! agentd: a per-user daemon that hosts coding-agent sessions.
//!
//! The modules are floors; a lower one never imports a higher one, and `tests/floors.rs` holds them to it. See
//! ARCHITECTURE.md.

// Floor 1: settings, keys, places, time, names.
pub mod clock;
pub mod config;
pub mod ids;
pub mod paths;
pub mod secret;

// Floor 2: what touches the world, and what decides.
pub mod journal;
pub mod model;
pub mod permission;
pub mod plan;
pub mod process;
pub mod store;
pub mod workspace;

// Floor 3: what an agent can do, and how a request is built.
pub mod context;
pub mod tool;

// Floor 4: the engine.
pub mod session;

// Floor 5: which sessions are live.
pub mod registry;

// Floor 6: the socket.
pub mod rpc;

// Floor 7: start and stop.
pub mod start;
