//! One daemon after the other: started with its kill, connected to, buried when it is dead.

use std::os::unix::process::ExitStatusExt as _;

use agentd_tests::{Daemon, Start};
use anyhow::{Context as _, ensure};
use rustix::process::Signal;
use serde_json::json;

use super::{Client, Run};
use crate::client::{Talk, Trouble, Wire};
use crate::kills::{Kill, Timer};

/// What the clients call themselves.
const NAMES: [&str; 2] = ["one", "two"];

impl Run<'_> {
    pub(super) fn start(&mut self) -> anyhow::Result<()> {
        loop {
            let kill = self.kills.pop_front();
            if let Some(Kill::Early(wait)) = kill {
                Daemon::killed_after(&self.home, &Start::default(), wait);
                self.killed += 1;
                continue;
            }
            let daemon = Daemon::start(&self.home, Kill::start(kill.as_ref()));
            self.asked = matches!(kill, Some(Kill::Ask(_)));
            if let Some(Kill::After(wait) | Kill::Ask(wait)) = kill {
                let signal = if self.asked { Signal::TERM } else { Signal::KILL };
                self.timer = Some(Timer::start(wait, daemon.pid(), signal)?);
            }
            self.daemon = Some(daemon);
            match self.connect() {
                Ok(()) => return Ok(()),
                Err(Trouble::Lost) => self.bury()?,
                Err(Trouble::Wrong(error)) => return Err(error),
            }
        }
    }

    fn connect(&mut self) -> Talk<()> {
        let socket = self.home.socket();
        for (client, name) in self.clients.iter_mut().zip(NAMES) {
            let mut wire = Wire::connect(&socket)?;
            wire.send(
                "initialize",
                &json!({"protocolVersion": 1, "clientInfo": {"name": name, "version": "1", "actor": "person"}, "capabilities": {}}),
            )?;
            client.wire = Some(wire);
        }
        if self.follow { self.follow_all() } else { Ok(()) }
    }

    pub(super) fn follow_all(&mut self) -> Talk<()> {
        (0..self.clients.len()).try_for_each(|who| self.follow(who))
    }

    /// Follows anew, from the last event that was seen.
    pub(super) fn follow(&mut self, who: usize) -> Talk<()> {
        self.leave(who)?;
        let params = json!({"sessionId": self.session, "afterSeq": self.clients[who].last, "deltas": true});
        let id = self.wire(who)?.send("events/subscribe", &params)?;
        loop {
            match self.wire(who)?.take(id) {
                Some(Ok(subscription)) => {
                    self.clients[who].follows = Some(subscription);
                    return Ok(());
                }
                Some(Err(error)) => {
                    let last = self.clients[who].last;
                    return Err(anyhow::anyhow!(
                        "the session cannot be followed after event {last}: {error:?}"
                    )
                    .into());
                }
                None => self.pump(who)?,
            }
        }
    }

    /// Whatever still comes of the subscription does not count.
    fn leave(&mut self, who: usize) -> Talk<()> {
        if let Some(subscription) = self.clients[who].follows.take() {
            self.wire(who)?.send("events/unsubscribe", &json!({"subscription": subscription}))?;
            self.clients[who].left.push(subscription);
        }
        Ok(())
    }

    pub(super) fn revive(&mut self) -> anyhow::Result<()> {
        self.bury()?;
        self.start()
    }

    /// The daemon is dead, because it was killed or asked to end; what it had still sent is read.
    fn bury(&mut self) -> anyhow::Result<()> {
        let daemon = self.daemon.as_mut().context("a daemon")?;
        // Before the process is reaped, so that its pid is nobody else's. The connection is gone, so it has fired or is
        // not needed.
        self.timer = None;
        let status = daemon.ended();
        if self.asked {
            ensure!(status.success(), "the daemon was asked to end, and ended so: {status}");
        } else {
            ensure!(status.signal() == Some(9), "the daemon ended by itself: {status}");
        }
        self.killed += 1;
        for who in 0..self.clients.len() {
            while self.clients[who].wire.is_some() {
                match self.pump(who) {
                    Ok(()) => {}
                    Err(Trouble::Lost) => {
                        self.clients[who] = Client { last: self.clients[who].last, ..Client::default() }
                    }
                    Err(Trouble::Wrong(error)) => return Err(error),
                }
            }
        }
        Ok(())
    }
}
