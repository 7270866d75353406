//! The commands that look at a session without changing it: `log`, `show`, `events`, `wait`. `transcript` makes turns of
//! events and knows nothing of terminals; `draw` makes lines of turns.

mod draw;
pub(super) mod events;
pub(super) mod log;
pub(super) mod paper;
pub(super) mod past;
pub(super) mod show;
mod state;
#[cfg(test)]
mod tests;
pub(super) mod transcript;
pub(super) mod wait;

use agentd_client::Client;
use agentd_protocol::session::{SessionParams, State};
use agentd_protocol::{SessionId, method};

use super::exit::Failure;

/// The session as it is now.
async fn state_of(client: &Client, session_id: SessionId) -> Result<State, Failure> {
    Ok(client.call::<method::SessionGet>(SessionParams { session_id }).await?.state)
}
