//! The socket: listening, who may speak, framings, and the way from a message to its handler and back. Only this module
//! sees JSON-RPC.

mod connection;
mod detect;
mod dispatch;
mod error;
pub mod handlers;
mod layers;
mod limits;
mod listen;
mod message;
mod peer;
mod register;
mod serve;
mod subscribe;
mod wire;

#[cfg(test)]
mod tests;

pub use connection::ConnectionInfo;
pub use detect::Framing;
pub use error::{error, error_with};
pub use limits::{Gauges, Limits};
pub use listen::{ListenError, Listener, activated, bind};
pub use peer::{Peer, PeerPolicy, PeerRefused};
pub use register::{method, parse_params, subscription};
pub use serve::{Server, serve};
