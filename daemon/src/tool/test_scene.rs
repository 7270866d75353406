//! A session's folder for tests, and calls as the engine makes them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agentd_protocol::permission::Confinement;
use serde_json::Value;
use serde_json::value::to_raw_value;
use tokio_util::sync::CancellationToken;

use super::{Closed, Output, Prepared, RunContext, Scene, Tool, ToolError, Work};
use crate::ids::{Digest, SessionId};
use crate::permission::Rules;

pub(crate) struct TestScene {
    _dir: tempfile::TempDir,
    pub(crate) root: PathBuf,
    pub(crate) plan_file: Option<PathBuf>,
    pub(crate) private: Vec<PathBuf>,
    pub(crate) rules: Option<Arc<Rules>>,
    pub(crate) reads: RefCell<HashMap<PathBuf, Digest>>,
    pub(crate) cancel: CancellationToken,
}

impl TestScene {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("home")).unwrap();
        std::fs::create_dir(root.join("ws")).unwrap();
        Self {
            _dir: dir,
            root,
            plan_file: None,
            private: Vec::new(),
            rules: None,
            reads: RefCell::default(),
            cancel: CancellationToken::new(),
        }
    }

    pub(crate) fn scene(&self) -> Scene {
        Scene {
            session: SessionId::generate(),
            cwd: self.root.join("ws"),
            plan_file: self.plan_file.clone(),
            reads: Arc::new(self.reads.borrow().clone()),
            env: Arc::new(vec![("HOME".into(), self.root.join("home").to_str().unwrap().into())]),
            scratch: self.root.clone(),
            closed: Closed {
                own: self.private.clone().into(),
                rules: self.rules.clone(),
                cwd: self.path(""),
                root: self.path(""),
                home: self.root.join("home"),
            },
        }
    }

    pub(crate) fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.root.join("ws").join(below)
    }

    /// Puts a file into the session's folder, as somebody else would.
    pub(crate) fn put(&self, below: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(below);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    pub(crate) fn bytes(&self, below: impl AsRef<Path>) -> Vec<u8> {
        std::fs::read(self.path(below)).unwrap()
    }

    /// A call that can be carried out. One that cannot, whether that shows before or after the gate, is an error.
    pub(crate) fn prepare(&self, tool: &dyn Tool, arguments: Value) -> Result<Prepared, ToolError> {
        let prepared = tool.prepare(&to_raw_value(&arguments).unwrap(), &self.scene())?;
        match prepared.work {
            Work::Refuse(error) => Err(error),
            Work::Run(_) | Work::Ask(_) => Ok(prepared),
        }
    }

    /// Prepares and runs a call and remembers what the session knows after it.
    pub(crate) fn call(&self, tool: &dyn Tool, arguments: Value) -> Output {
        let prepared = match self.prepare(tool, arguments) {
            Ok(prepared) => prepared,
            Err(error) => return Output::error(error.0),
        };
        self.run(prepared)
    }

    pub(crate) fn run(&self, prepared: Prepared) -> Output {
        let Work::Run(run) = prepared.work else { panic!("the call asks the session") };
        let context = RunContext { cancel: self.cancel.clone(), confinement: Confinement::Off };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let output = runtime.block_on(run(context));
        self.reads.borrow_mut().extend(output.reads.iter().cloned());
        output
    }
}
