//! `list_files`: what is in a folder, or which paths below it match a glob.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::Path;

use agentd_protocol::event::ToolKind;
use serde_json::json;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::arguments::{Arguments, schema};
use super::file_edit::{locate, shown, target};
use super::listing::{PathGlob, Stop, one_line};
use super::{Closed, Output, Prepared, Scene, Tool, ToolError, Work, blocking};
use crate::model::message::ToolSpec;
use crate::permission::effect::Effect;
use crate::workspace::{Depth, Folder, Found, Kind, Located, PathError, Walk, WalkEnd, walk};

const MAX_SHOWN: usize = 1_000;
/// Names may be long.
const MAX_BYTES: usize = 100 << 10;

pub(super) struct ListFiles;

impl Tool for ListFiles {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "list_files".to_owned(),
            description: "Lists a folder, sorted; names of folders end with `/`. With `pattern` it lists everything \
                below the folder whose path matches that glob: `*.rs` at any depth, `src/**/*.ts`, `**/*` for all. \
                Hidden files are listed; `.git` and what git ignores are not, unless `path` names a folder in there. \
                Shows at most 1,000 entries. To find text in files use grep_search."
                .to_owned(),
            input_schema: schema(
                json!({
                    "path": {"type": "string", "description": "The folder. Default: the working directory"},
                    "pattern": {"type": "string", "description": "A glob, matched below `path`"}
                }),
                &[],
            ),
        }
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Search
    }

    fn prepare(&self, arguments: &RawValue, scene: &Scene) -> Result<Prepared, ToolError> {
        let arguments = Arguments::parse(arguments)?;
        let pattern = arguments.optional_string("pattern")?.filter(|pattern| !pattern.is_empty());
        let glob = pattern.map(|pattern| PathGlob::parse("pattern", pattern)).transpose()?;
        let located = locate(scene, arguments.optional_string("path")?.unwrap_or("."))?;
        match located.must_exist()? {
            Kind::Folder => {}
            Kind::File => {
                let name = shown(scene, &located.real);
                return Err(ToolError(format!("{name} is a file, not a folder. Use read_file to see it.")));
            }
            _ => return Err(PathError::NotAFolder { path: located.real }.into()),
        }
        let name = shown(scene, &located.real).into_owned();
        let title = match pattern {
            Some(pattern) => format!("list {pattern} in {name}"),
            None => format!("list {name}"),
        };
        let closed = scene.closed.clone();
        Ok(Prepared {
            title,
            effects: vec![Effect::ReadPath(target(&located))],
            diff: None,
            work: Work::Run(Box::new(move |context| {
                Box::pin(blocking(context.cancel, move |cancel| {
                    list(&located, &name, glob.as_ref(), &closed, cancel)
                }))
            })),
        })
    }
}

fn list(
    located: &Located,
    name: &str,
    glob: Option<&PathGlob>,
    closed: &Closed,
    cancel: &CancellationToken,
) -> Output {
    let stop = Stop::new(cancel);
    let prefix = if name == "." { Path::new("") } else { Path::new(name) };
    let mut lines = Lines::default();
    let walked = located.open_folder().and_then(|folder| {
        let how = Walk {
            depth: if glob.is_some() { Depth::All } else { Depth::One },
            skip: &|path| closed.holds(path),
            stop: &|| stop.now(),
        };
        walk(&folder, &how, &mut |found| {
            if glob.is_none_or(|glob| glob.matches(&found.below)) {
                lines.add(&folder, prefix, &found);
            }
            ControlFlow::Continue(())
        })
    });
    let end = match walked {
        Ok(end) => end,
        Err(error) => return Output::error(ToolError::from(error).0),
    };
    if stop.is_cancelled() {
        return Output::error("Interrupted.");
    }
    Output::ok(lines.finish(name, glob.is_some(), end))
}

#[derive(Default)]
struct Lines {
    text: String,
    shown: usize,
    total: usize,
}

impl Lines {
    fn add(&mut self, folder: &Folder, prefix: &Path, found: &Found) {
        self.total += 1;
        if self.shown == MAX_SHOWN || self.text.len() >= MAX_BYTES {
            return;
        }
        self.shown += 1;
        let path = one_line(&prefix.join(&found.below));
        let _ = match found.kind {
            Kind::File => writeln!(self.text, "{path}"),
            Kind::Folder => writeln!(self.text, "{path}/"),
            Kind::Link => match folder.link_target(&found.below) {
                Ok(to) => writeln!(self.text, "{path} -> {}", one_line(&to)),
                Err(_) => writeln!(self.text, "{path} [a link]"),
            },
            kind => writeln!(self.text, "{path} [{kind}]"),
        };
    }

    fn finish(mut self, name: &str, by_glob: bool, end: WalkEnd) -> String {
        if self.total == 0 {
            self.text = match (by_glob, end.ignored) {
                (true, _) => format!("Nothing in {name} matches.\n"),
                (false, 0) => format!("{name} is empty.\n"),
                (false, _) => format!("{name} holds only what git ignores.\n"),
            };
        }
        if self.shown < self.total {
            let at_least = if end.too_many || end.stopped { "at least " } else { "" };
            let _ = writeln!(
                self.text,
                "[{} of {at_least}{} entries shown. Narrow `path` or `pattern` to see the others.]",
                self.shown, self.total
            );
        }
        if end.ignored > 0 {
            let _ = writeln!(self.text, "[{} ignored by git and not listed.]", end.ignored);
        }
        if end.incomplete > 0 {
            let _ = writeln!(self.text, "[{} folders could not be listed to the end.]", end.incomplete);
        }
        if end.too_many || end.stopped {
            self.text
                .push_str("[There was too much to look at, so this is not all. Name a smaller folder.]\n");
        }
        self.text
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    use serde_json::Value;

    use super::*;
    use crate::permission::effect::{PathTarget, Via};
    use crate::tool::test_scene::TestScene;

    fn listed(test: &TestScene, arguments: Value) -> String {
        let output = test.call(&ListFiles, arguments);
        assert!(!output.is_error, "{}", output.content);
        output.content
    }

    fn repository(test: &TestScene) {
        test.put(".git/HEAD", "ref: refs/heads/main\n");
    }

    #[test]
    fn a_folder_is_listed_sorted_with_kinds_marked() {
        let test = TestScene::new();
        test.put("b.rs", "");
        test.put("a/inner.rs", "");
        test.put(".github/ci.yml", "");
        symlink("a", test.path("link")).unwrap();
        let prepared = test.prepare(&ListFiles, json!({})).unwrap();
        let target =
            PathTarget { via: Via::Tool, typed: ".".into(), real: test.path("").components().collect() };
        assert_eq!(prepared.effects, [Effect::ReadPath(target)]);
        assert_eq!(prepared.title, "list .");
        assert_eq!(test.run(prepared).content, ".github/\na/\nb.rs\nlink -> a\n");
        assert_eq!(listed(&test, json!({"path": "a"})), "a/inner.rs\n");
        assert_eq!(listed(&test, json!({"pattern": "*.rs"})), "a/inner.rs\nb.rs\n");
        assert_eq!(listed(&test, json!({"pattern": "*.none"})), "Nothing in . matches.\n");
        let outside = listed(&test, json!({"path": "../home"}));
        assert_eq!(outside, format!("{} is empty.\n", test.root.join("home").display()));
    }

    #[test]
    fn what_is_no_folder_is_refused() {
        let test = TestScene::new();
        test.put("f", "");
        for (path, why) in
            [("f", "read_file"), ("none", "does not exist"), ("/proc", "refused"), ("/dev", "refused")]
        {
            let error = test.prepare(&ListFiles, json!({"path": path})).unwrap_err().0;
            assert!(error.contains(why), "{path}: {error}");
        }
    }

    #[test]
    fn a_thousand_entries_are_shown_and_the_rest_counted() {
        let test = TestScene::new();
        for n in 0..1_005 {
            test.put(format!("f{n:04}"), "");
        }
        let text = listed(&test, json!({}));
        assert_eq!(text.lines().count(), 1_001);
        assert!(text.ends_with(
            "f0999\n[1000 of 1005 entries shown. Narrow `path` or `pattern` to see the others.]\n"
        ));
    }

    #[test]
    fn sr_04_a_leading_dash_is_a_name() {
        let test = TestScene::new();
        test.put("--pre=./evil.sh/-S", "");
        assert_eq!(listed(&test, json!({"path": "--pre=./evil.sh"})), "--pre=./evil.sh/-S\n");
        assert_eq!(listed(&test, json!({"pattern": "-S"})), "--pre=./evil.sh/-S\n");
    }

    #[test]
    fn sr_08_the_ignored_set_is_gits() {
        let test = TestScene::new();
        repository(&test);
        test.put(".gitignore", "*.log\n!keep.log\n/target/\nlinkdir/\nbuild/\n# comment\n\\#hash\n");
        test.put("a.log", "");
        test.put("keep.log", "");
        test.put("target/out", "");
        test.put("sub/target/not-anchored", "");
        test.put("sub/.gitignore", "!a.log\nlocal.txt\n");
        test.put("sub/a.log", "");
        test.put("sub/b.log", "");
        test.put("sub/local.txt", "");
        test.put("local.txt", "");
        test.put("build/keep.log", "");
        test.put("#hash", "");
        test.put(".hidden/file", "");
        test.put(".git/config", "");
        // A rule for folders does not hit a link of that name.
        symlink("sub", test.path("linkdir")).unwrap();
        test.put(".git/info/exclude", "private.txt\n");
        test.put("private.txt", "");
        assert_eq!(
            listed(&test, json!({"pattern": "**/*"})),
            ".gitignore\n.hidden/\n.hidden/file\nkeep.log\nlinkdir -> sub\nlocal.txt\nsub/\nsub/.gitignore\nsub/a.log\n\
             sub/target/\nsub/target/not-anchored\n[7 ignored by git and not listed.]\n"
        );
        // Rules from above hold in a folder below the root, and naming an ignored folder means it.
        assert_eq!(
            listed(&test, json!({"path": "sub"})),
            "sub/.gitignore\nsub/a.log\nsub/target/\n[2 ignored by git and not listed.]\n"
        );
        assert_eq!(listed(&test, json!({"path": "target"})), "target/out\n");
    }

    #[test]
    fn sr_08_a_nested_repository_has_its_own_rules_and_no_repository_has_none() {
        let test = TestScene::new();
        test.put("plain/.gitignore", "*.log\n");
        test.put("plain/a.log", "");
        assert_eq!(listed(&test, json!({"path": "plain"})), "plain/.gitignore\nplain/a.log\n");
        test.put("outer/.git/HEAD", "");
        test.put("outer/.gitignore", "*.log\n");
        test.put("outer/inner/.git/HEAD", "");
        test.put("outer/inner/a.log", "");
        assert_eq!(listed(&test, json!({"path": "outer", "pattern": "*.log"})), "outer/inner/a.log\n");
        assert_eq!(listed(&test, json!({"path": "outer/inner"})), "outer/inner/a.log\n");
    }

    #[test]
    fn sr_10_strange_names_are_listed_on_one_line_each() {
        let test = TestScene::new();
        test.put(OsStr::from_bytes(b"bad\xff"), "");
        test.put("new\nline", "");
        test.put("tab\there", "");
        test.put("-dash", "");
        let long = "n".repeat(255);
        test.put(&long, "");
        assert_eq!(
            listed(&test, json!({})),
            format!(
                "-dash\nbad\u{fffd} [name is not UTF-8]\nnew\\nline [name has control characters]\n{long}\n\
                 tab\\there [name has control characters]\n"
            )
        );
    }

    #[test]
    fn private_folders_and_the_outside_behind_links_are_not_listed() {
        let mut test = TestScene::new();
        test.put("state/sessions/journal", "");
        test.put("state2", "");
        symlink("../home", test.path("home")).unwrap();
        test.private = vec![test.path("state")];
        assert_eq!(listed(&test, json!({"pattern": "**/*"})), "home -> ../home\nstate2\n");
    }

    #[test]
    fn an_interrupted_listing_says_so() {
        let test = TestScene::new();
        test.cancel.cancel();
        assert!(test.call(&ListFiles, json!({})).is_error);
    }
}
