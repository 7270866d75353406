//! A typed client for agentd.
//!
//! [`connect`] reaches a running daemon, [`connect_or_start`] starts one where none runs. A [`Client`] then calls methods
//! by their type and follows events; after a lost connection both come back by themselves, so a restart of the daemon
//! is a pause and not an error. The crate never reads the daemon's files.
//!
//! ```no_run
//! # use agentd_client::{ConnectOptions, StartOptions, StreamItem, connect_or_start};
//! # use agentd_protocol::{event::SubscribeParams, initialize::{Actor, ClientInfo}, method, session::ListParams};
//! # async fn example() -> anyhow::Result<()> {
//! let who = ClientInfo { name: "example".into(), version: "1".into(), actor: Actor::Program };
//! let (client, _) = connect_or_start(ConnectOptions::new(who), StartOptions::default()).await?;
//! let list = client.call::<method::SessionList>(ListParams::default()).await?;
//! let mut events = client.subscribe(SubscribeParams::default()).await?;
//! while let Some(item) = events.next().await? {
//!     if let StreamItem::Event(received) = item {
//!         println!("{}", received.event.body.type_name());
//!     }
//! }
//! # Ok(()) }
//! ```

pub mod client;
pub mod connect;
pub mod events;
pub mod history;
pub mod place;
mod position;
pub mod start;
mod transport;

pub use client::{CallError, Client};
pub use connect::{ConnectError, ConnectOptions, connect};
pub use events::{EventStream, Received, StreamItem};
pub use history::HistoryPage;
pub use start::{StartError, StartOptions, Startup, connect_or_start};

#[cfg(test)]
mod tests;
