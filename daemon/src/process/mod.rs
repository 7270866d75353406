//! The only code that spawns.
//!
//! Every process runs under a helper: this program again, entered at [`helper::main`] before any thread exists. The
//! helper holds one end of a socket; when the other end closes, because the call is over or the daemon is dead, it ends
//! everything that the command started. So nothing outlives its call, not even a call of a daemon that was killed.
//!
//! The daemon itself never runs code between fork and exec: that would force a real fork, whose cost grows with the
//! daemon's memory. What has to happen there happens in the helper, which is small.

mod capture;
mod environment;
pub mod helper;
mod program;
mod spawner;
mod strays;
mod tree;
mod wire;

pub use capture::{Captured, OutputLimits, Parts};
pub use environment::{DEFAULT_PATH, Owner, RefusedName, base_env, filter_client_env};
pub use program::{ProgramError, ProgramSpec};
pub use spawner::{CommandSpec, Finished, GRACE, Leftovers, SpawnError, Spawner, Status};
