//! The bundled demo: a small sample project, and the script that the playback server plays on it.

use super::playback::Script;

/// The sample project: relative path and content of each file.
const PROJECT: &[(&str, &str)] = &[
    ("README.md", include_str!("../../assets/demo/project/README.md")),
    ("todo/__init__.py", include_str!("../../assets/demo/project/todo/__init__.py")),
    ("todo/store.py", include_str!("../../assets/demo/project/todo/store.py")),
    ("todo/service.py", include_str!("../../assets/demo/project/todo/service.py")),
    ("todo/server.py", include_str!("../../assets/demo/project/todo/server.py")),
    ("tests/__init__.py", include_str!("../../assets/demo/project/tests/__init__.py")),
    ("tests/test_service.py", include_str!("../../assets/demo/project/tests/test_service.py")),
];

/// A prompt that fits the scenario.
pub const PROMPT: &str = "Add pagination to the list endpoint";

#[must_use]
pub fn project() -> &'static [(&'static str, &'static str)] {
    PROJECT
}

/// The script of provider `demo`.
#[must_use]
pub fn script() -> Script {
    // A broken script would be a bug of this build, which `tests::demo` finds; a person still gets an answer.
    Script::parse(include_str!("../../assets/demo/script.json"))
        .unwrap_or_else(|error| Script::saying(&format!("The demo's script is broken: {error}")))
}
