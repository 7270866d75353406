//! Texts too long for an event.

use agentd_client::Client;
use agentd_protocol::blob::BlobGetParams;
use agentd_protocol::event::Text;
use agentd_protocol::{SessionId, method};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::exit::Failure;

/// The whole text, fetched in pieces if it travels as a blob.
///
/// # Errors
/// The daemon does not give it.
pub(crate) async fn whole(client: &Client, session_id: SessionId, text: Text) -> Result<String, Failure> {
    let blob = match text {
        Text::Inline(text) => return Ok(text),
        Text::Blob(blob) => blob,
    };
    let mut bytes = Vec::new();
    loop {
        let offset = bytes.len() as u64;
        let params = BlobGetParams { session_id, sha256: blob.blob, offset, length: None };
        let piece = client.call::<method::BlobGet>(params).await?;
        let data = BASE64_STANDARD
            .decode(&piece.data)
            .map_err(|error| Failure::failed(format!("agentd sent a text that cannot be read: {error}")))?;
        let end = data.is_empty();
        bytes.extend(data);
        if end || bytes.len() as u64 >= piece.size {
            return Ok(String::from_utf8_lossy(&bytes).into_owned());
        }
    }
}
