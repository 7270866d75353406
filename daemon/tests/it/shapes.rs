//! The shapes of the gate's corpus, really run: that bash runs what stands in them is why none of them may be allowed.

use std::path::Path;
use std::process::{Command, Stdio};

const SHAPES: &str = include_str!("../../src/permission/shell/corpus/shapes.txt");

/// Runs a line where nothing but `scratch` can be written and no network is there. Absent: that cannot be had here.
pub(super) fn confined(scratch: &Path, line: &str) -> Option<()> {
    let mut command = Command::new("timeout");
    command.args([
        "-k",
        "1",
        "60",
        "bwrap",
        "--ro-bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "--proc",
        "/proc",
        "--bind",
    ]);
    command.arg(scratch).arg(scratch).args(["--unshare-all", "--die-with-parent", "--chdir"]).arg(scratch);
    command.args(["/bin/bash", "--noprofile", "--norc", "-c", line]).env_clear();
    command.envs([("PATH", "/usr/bin:/bin"), ("HOME", "/nonexistent"), ("LANG", "C.UTF-8")]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().ok().map(drop)
}

#[test]
fn bash_runs_what_stands_in_each_shape() {
    let root = tempfile::tempdir().unwrap();
    let probe = root.path().join("probe");
    std::fs::create_dir(&probe).unwrap();
    if confined(&probe, "touch there").is_none() || !probe.join("there").exists() {
        eprintln!("!! skipped: bubblewrap is missing or may not make namespaces here");
        return;
    }
    let shapes = SHAPES.lines().filter_map(|line| line.strip_prefix("+ "));
    let mut silent = Vec::new();
    for (number, shape) in shapes.enumerate() {
        let scratch = root.path().join(number.to_string());
        std::fs::create_dir(&scratch).unwrap();
        for arguments in [
            &["init", "-q"][..],
            &["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", "x"],
        ] {
            let made = Command::new("git").arg("-C").arg(&scratch).args(arguments).status().unwrap();
            assert!(made.success());
        }
        std::fs::write(scratch.join("a"), "").unwrap();
        let line =
            shape.replace("\\n", "\n").replace("\\t", "\t").replace("\\&", "&").replace('@', "touch mark");
        confined(&scratch, &line);
        if !scratch.join("mark").exists() {
            silent.push(shape);
        }
    }
    assert!(silent.is_empty(), "bash does not run what stands in these: {silent:#?}");
}
