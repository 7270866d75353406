//! What the gate would say, to a session or to one that is not there yet.

use std::sync::Arc;

use agentd_protocol::SessionId;

use super::Registry;
use crate::session::command::Command;
use crate::session::{Inquiry, SessionError};

impl Registry {
    /// What the gate's answers depend on: of a session, or of a new one in a folder.
    ///
    /// # Errors
    /// There is no such session or folder.
    pub async fn inquiry(
        self: &Arc<Self>,
        session: Option<SessionId>,
        cwd: Option<&str>,
    ) -> Result<Inquiry, SessionError> {
        if let Some(id) = session {
            return self.ask(id, |reply| Command::Inquiry { reply }).await.map(|inquiry| *inquiry);
        }
        let (deps, cwd) = (Arc::clone(&self.deps), cwd.map(str::to_owned));
        crate::session::blocking(move || Inquiry::of_folder(deps, cwd.as_deref())).await
    }
}
