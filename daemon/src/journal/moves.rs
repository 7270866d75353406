//! What the service does for sessions that move: bundles are written and unpacked, folders change places.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use agentd_protocol::Timestamp;
use serde_json::value::RawValue;

use super::bundle::{self, Bundle, BundleError, Packed, Packing};
use super::service::{JournalService, blocking};
use super::storage::Reached;
use super::{JournalError, folder, staging};

impl JournalService {
    /// Puts a staged folder into the place of a session's, in one step. Nobody may have that session's journal open.
    ///
    /// # Errors
    /// The reason why nothing has changed.
    pub async fn exchange(&self, staged: PathBuf, dir: PathBuf) -> Result<(), JournalError> {
        let layer = Arc::clone(&self.layer);
        self.work(move || staging::exchange(&staged, &dir).inspect(|()| layer.reached(Reached::InPlace)))
            .await?
    }

    /// Gives a staged journal another first commit; `rest` are the bytes that follow the one it has.
    ///
    /// # Errors
    /// It could not be written.
    pub async fn begin_anew(
        &self,
        staged: PathBuf,
        first: (Timestamp, Vec<Box<RawValue>>),
        rest: Range<u64>,
    ) -> Result<(), JournalError> {
        blocking(move || staging::begin_anew(&staged, (first.0, &first.1), &rest)).await?
    }

    /// Gives a staged session the blobs of the one in `dir` that it has not.
    ///
    /// # Errors
    /// They could not be linked or copied.
    pub async fn add_blobs(&self, dir: PathBuf, staged: PathBuf) -> Result<(), JournalError> {
        blocking(move || staging::add_blobs(&dir, &staged)).await?
    }

    /// Bytes that the sessions of these folders take on the disk, each.
    ///
    /// # Errors
    /// `Stopped`.
    pub async fn weigh(&self, dirs: Vec<PathBuf>) -> Result<Vec<u64>, JournalError> {
        blocking(move || dirs.iter().map(|dir| folder::weigh(dir)).collect()).await
    }

    /// Writes a bundle under a temporary name; when this returns it is whole and on the disk.
    ///
    /// # Errors
    /// It could not be written; nothing of it is left.
    pub async fn pack(&self, packing: Packing, temporary: PathBuf) -> Result<Packed, BundleError> {
        let layer = Arc::clone(&self.layer);
        blocking(move || bundle::pack(&packing, &temporary).inspect(|_| layer.reached(Reached::Packed)))
            .await?
    }

    /// Whether a bundle can get this name.
    ///
    /// # Errors
    /// `Exists`.
    pub async fn is_free(&self, target: PathBuf, replace: bool) -> Result<(), BundleError> {
        blocking(move || bundle::is_free(&target, replace)).await?
    }

    /// Gives a bundle its name.
    ///
    /// # Errors
    /// `Exists`, if something has that name and is not to be replaced; else the reason why it could not be renamed.
    pub async fn name_bundle(
        &self,
        temporary: PathBuf,
        target: PathBuf,
        replace: bool,
    ) -> Result<(), BundleError> {
        let layer = Arc::clone(&self.layer);
        blocking(move || {
            bundle::name(&temporary, &target, replace).inspect(|()| layer.reached(Reached::Named))
        })
        .await?
    }

    /// Takes a bundle without a name away again; that it is gone already is no failure.
    pub async fn drop_bundle(&self, temporary: PathBuf) {
        let removed = blocking(move || std::fs::remove_file(&temporary)).await;
        if let Ok(Err(error)) = removed
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "a bundle without a name was left behind");
        }
    }

    /// Opens a bundle and reads what it says of itself.
    ///
    /// # Errors
    /// It is none, or one of a later version.
    pub async fn open_bundle(&self, path: PathBuf) -> Result<Arc<Bundle>, BundleError> {
        blocking(move || Bundle::open(&path).map(Arc::new)).await?
    }

    /// Unpacks a bundle into a place beside `dir`, which is returned with the plan, until [`JournalService::unveil`] or
    /// [`JournalService::exchange`]. All of it is as the bundle lists it.
    ///
    /// # Errors
    /// It is not what it lists, or could not be written; nothing of it is left.
    pub async fn unpack(
        &self,
        bundle: &Arc<Bundle>,
        dir: PathBuf,
    ) -> Result<(PathBuf, Option<Vec<u8>>), BundleError> {
        let bundle = Arc::clone(bundle);
        blocking(move || staging::staged(&dir, |staged| bundle.unpack(staged))).await?
    }

    /// A staged folder is as it is going to be.
    pub fn staged_whole(&self) {
        self.layer.reached(Reached::Staged);
    }
}
