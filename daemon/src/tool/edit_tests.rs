//! `write_file` and `edit_file` against real files: the cases that comparable tools got wrong.

use std::os::unix::fs::symlink;

use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::edit_file::EditFile;
use super::read_file::ReadFile;
use super::test_scene::TestScene;
use super::write_file::WriteFile;
use super::{Output, PlanEdit, Request, Tool, Work};
use crate::ids::digest_of;
use crate::permission::effect::{Effect, PathTarget, Via};

fn read(test: &TestScene, path: &str) -> Output {
    let output = test.call(&ReadFile, json!({"file_path": path}));
    assert!(!output.is_error, "{}", output.content);
    output
}

fn edit(test: &TestScene, path: &str, old: &str, new: &str) -> Output {
    test.call(&EditFile, json!({"file_path": path, "old_string": old, "new_string": new}))
}

fn write(test: &TestScene, path: &str, content: &str) -> Output {
    test.call(&WriteFile, json!({"file_path": path, "content": content}))
}

fn good(output: Output) -> Output {
    assert!(!output.is_error, "{}", output.content);
    output
}

fn bad(output: &Output, part: &str) {
    assert!(output.is_error && output.content.contains(part), "wanted {part:?}: {}", output.content);
}

#[test]
fn a_new_file_is_made_and_known() {
    let test = TestScene::new();
    let prepared =
        test.prepare(&WriteFile, json!({"file_path": "a/b.txt", "content": "one\ntwo\n"})).unwrap();
    assert_eq!(prepared.title, "write a/b.txt");
    let target = PathTarget { via: Via::Tool, typed: "a/b.txt".into(), real: test.path("a/b.txt") };
    assert_eq!(prepared.effects, [Effect::WritePath(target)]);
    assert!(prepared.diff.as_ref().unwrap().contains("--- /dev/null\n+++ b/a/b.txt"));
    assert!(!test.path("a").exists(), "preparing changes nothing");
    let output = good(test.run(prepared));
    assert_eq!(output.content, "Created a/b.txt (2 lines).");
    let change = &output.changes[0];
    assert_eq!((change.before, change.after, change.added), (None, Some(digest_of(b"one\ntwo\n")), 2));
    let output = good(edit(&test, "a/b.txt", "two", "three"));
    assert!(
        output.content.starts_with("Changed a/b.txt (+1 −1 lines).\n--- a/a/b.txt"),
        "{}",
        output.content
    );
    assert_eq!(test.bytes("a/b.txt"), b"one\nthree\n");
}

#[test]
fn a_file_must_have_been_read_as_it_is() {
    let test = TestScene::new();
    test.put("f", "one\n");
    bad(&write(&test, "f", "two\n"), "Read f with read_file first");
    bad(&edit(&test, "f", "one", "two"), "Read f with read_file first");
    read(&test, "f");
    test.put("f", "changed\n");
    bad(&write(&test, "f", "two\n"), "changed since you last read it");
    bad(&edit(&test, "f", "changed", "two"), "changed since you last read it");
    assert_eq!(test.bytes("f"), b"changed\n");
    read(&test, "f");
    good(write(&test, "f", "two\n"));
    good(write(&test, "f", "three\n"));
}

#[test]
fn a_file_that_changes_between_judgement_and_write_is_left_alone() {
    let test = TestScene::new();
    test.put("f", "one\n");
    read(&test, "f");
    let prepared = test.prepare(&WriteFile, json!({"file_path": "f", "content": "two\n"})).unwrap();
    test.put("f", "theirs\n");
    bad(&test.run(prepared), "changed in the meantime");
    let prepared = test.prepare(&WriteFile, json!({"file_path": "new", "content": "mine\n"})).unwrap();
    test.put("new", "theirs\n");
    bad(&test.run(prepared), "exists already");
    assert_eq!((test.bytes("f"), test.bytes("new")), (b"theirs\n".to_vec(), b"theirs\n".to_vec()));
}

#[test]
fn equal_content_writes_nothing() {
    let test = TestScene::new();
    let path = test.put("f", "same\n");
    let before = path.metadata().unwrap().modified().unwrap();
    let output = good(write(&test, "f", "same\n"));
    assert!(output.content.contains("nothing was written") && output.changes.is_empty());
    assert_eq!(path.metadata().unwrap().modified().unwrap(), before);
    good(write(&test, "f", "other\n"));
}

#[test]
fn ed_01_a_crlf_file_is_edited_with_what_read_file_showed() {
    let test = TestScene::new();
    test.put("f", "one\r\ntwo\r\nthree\r\n");
    assert!(!read(&test, "f").content.contains('\r'));
    good(edit(&test, "f", "one\ntwo\n", "1\n1.5\n2\n"));
    assert_eq!(test.bytes("f"), b"1\r\n1.5\r\n2\r\nthree\r\n");
}

#[test]
fn ed_02_editing_one_line_of_a_thousand_leaves_the_others() {
    let test = TestScene::new();
    let text: String = (0..1_000).map(|n| format!("line {n}\r\n")).collect();
    test.put("f", &text);
    read(&test, "f");
    let output = good(edit(&test, "f", "line 500\n", "LINE 500\n"));
    assert_eq!(test.bytes("f"), text.replace("line 500\r", "LINE 500\r").into_bytes());
    assert_eq!((output.changes[0].added, output.changes[0].removed), (1, 1));
}

#[test]
fn ed_05_a_byte_order_mark_is_kept() {
    let test = TestScene::new();
    let bom = |text: &str| [b"\xef\xbb\xbf", text.as_bytes()].concat();
    test.put("f", bom("first\nsecond\n"));
    read(&test, "f");
    good(edit(&test, "f", "first", "1st"));
    assert_eq!(test.bytes("f"), bom("1st\nsecond\n"));
    good(edit(&test, "f", "second", "2nd"));
    assert_eq!(test.bytes("f"), bom("1st\n2nd\n"));
    let output = good(write(&test, "f", "whole\n"));
    assert!(output.content.contains("byte order mark was kept"));
    assert_eq!(test.bytes("f"), bom("whole\n"));
    good(write(&test, "f", "\u{feff}own mark\n"));
    assert_eq!(test.bytes("f"), bom("own mark\n"));
}

#[test]
fn ed_07_other_encodings_are_never_saved_lossily() {
    let test = TestScene::new();
    for (name, bytes) in
        [("utf16", &b"\xff\xfeh\0i\0\n\0"[..]), ("latin1", b"caf\xe9\n"), ("binary", b"a\0\x01b")]
    {
        let path = test.put(name, bytes);
        // Even if it were known.
        test.reads.borrow_mut().insert(path, digest_of(bytes));
        let error = edit(&test, name, "h", "x");
        assert!(error.is_error, "{}", error.content);
        bad(&write(&test, name, "text\n"), "remove it first");
        assert_eq!(test.bytes(name), bytes);
    }
}

#[test]
fn ed_08_edits_through_links_keep_the_links() {
    let test = TestScene::new();
    test.put("real/f", "one\n");
    symlink("real/f", test.path("link")).unwrap();
    symlink("link", test.path("chain")).unwrap();
    read(&test, "chain");
    // Known by its real name, by whichever way it was read.
    let output = good(edit(&test, "link", "one", "two"));
    assert_eq!(output.changes[0].path, test.path("real/f"));
    good(write(&test, "chain", "three\n"));
    assert_eq!(test.bytes("real/f"), b"three\n");
    assert!(test.path("link").is_symlink() && test.path("chain").is_symlink());
    symlink("loop", test.path("loop")).unwrap();
    bad(&edit(&test, "loop", "a", "b"), "too many links");
    bad(&write(&test, "loop", "a"), "too many links");
    assert!(test.path("loop").is_symlink());
}

#[test]
fn ed_10_other_hard_links_keep_the_old_content_and_the_model_is_told() {
    let test = TestScene::new();
    test.put("a", "one\n");
    std::fs::hard_link(test.path("a"), test.path("b")).unwrap();
    read(&test, "a");
    let output = good(edit(&test, "a", "one", "two"));
    assert!(output.content.contains("other hard links"), "{}", output.content);
    assert_eq!((test.bytes("a"), test.bytes("b")), (b"two\n".to_vec(), b"one\n".to_vec()));
}

#[test]
fn ed_11_empty_old_string_never_touches_a_file() {
    let test = TestScene::new();
    test.put("full", "abc");
    test.put("empty", "");
    read(&test, "full");
    read(&test, "empty");
    for all in [true, false] {
        for name in ["full", "empty"] {
            let arguments =
                json!({"file_path": name, "old_string": "", "new_string": "x", "replace_all": all});
            bad(&test.call(&EditFile, arguments), "`old_string` is empty");
        }
        let arguments = json!({"file_path": "none", "old_string": "", "new_string": "x", "replace_all": all});
        bad(&test.call(&EditFile, arguments), "use write_file");
    }
    assert_eq!((test.bytes("full"), test.bytes("empty")), (b"abc".to_vec(), vec![]));
    assert!(!test.path("none").exists());
}

#[test]
fn ed_13_a_touched_but_equal_file_may_be_edited() {
    let test = TestScene::new();
    let path = test.put("f", "one\n");
    read(&test, "f");
    test.put("f", "one\n");
    let past = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1);
    std::fs::File::options().write(true).open(path).unwrap().set_modified(past).unwrap();
    good(edit(&test, "f", "one", "two"));
}

#[test]
fn ed_14_own_edits_do_not_trip_and_a_foreign_write_needs_one_reading() {
    let test = TestScene::new();
    test.put("f", "one\n");
    read(&test, "f");
    good(edit(&test, "f", "one", "two"));
    good(edit(&test, "f", "two", "three"));
    test.put("f", "three\nfrom a command\n");
    bad(&edit(&test, "f", "three", "four"), "Read it again");
    read(&test, "f");
    good(edit(&test, "f", "three", "four"));
}

#[test]
fn ed_16_a_near_miss_changes_nothing_and_is_explained() {
    let test = TestScene::new();
    test.put("f", "\tindented\n");
    read(&test, "f");
    bad(&edit(&test, "f", "    indented", "x"), "tabs, spaces");
    bad(&edit(&test, "f", "     1\t\tindented", "x"), "line numbers");
    assert_eq!(test.bytes("f"), b"\tindented\n");
}

#[test]
fn ed_17_final_newlines_are_exactly_as_given() {
    let test = TestScene::new();
    for end in ["", "\n", "\n\n"] {
        test.put("f", format!("a\nlast{end}"));
        read(&test, "f");
        good(edit(&test, "f", "last", "LAST"));
        assert_eq!(test.bytes("f"), format!("a\nLAST{end}").into_bytes());
        good(write(&test, "f", &format!("whole{end}")));
        assert_eq!(test.bytes("f"), format!("whole{end}").into_bytes());
    }
}

#[test]
fn write_file_keeps_crlf_throughout_and_nothing_half_way() {
    let test = TestScene::new();
    test.put("f", "a\r\nb\r\n");
    read(&test, "f");
    assert!(good(write(&test, "f", "x\ny\n")).content.contains("CRLF line endings were kept"));
    assert_eq!(test.bytes("f"), b"x\r\ny\r\n");
    test.put("f", "a\r\nb\n");
    read(&test, "f");
    good(write(&test, "f", "x\ny\n"));
    assert_eq!(test.bytes("f"), b"x\ny\n", "mixed endings are nobody's manner");
}

#[test]
fn replace_all_and_several_places() {
    let test = TestScene::new();
    test.put("f", "x y x\n");
    read(&test, "f");
    bad(&edit(&test, "f", "x", "z"), "2 times");
    let arguments = json!({"file_path": "f", "old_string": "x", "new_string": "z", "replace_all": true});
    assert!(good(test.call(&EditFile, arguments)).content.contains("2 places"));
    assert_eq!(test.bytes("f"), b"z y z\n");
}

#[test]
fn an_empty_file_may_be_filled_unread() {
    let test = TestScene::new();
    test.put("f", "");
    good(write(&test, "f", "text\n"));
    bad(&edit(&test, "missing", "a", "b"), "use write_file");
    assert_eq!(test.bytes("f"), b"text\n");
}

#[test]
fn an_interrupted_call_does_nothing() {
    let test = TestScene::new();
    test.cancel.cancel();
    bad(&write(&test, "f", "x"), "Interrupted");
    assert!(!test.path("f").exists());
}

fn plan_request(test: &TestScene, tool: &dyn super::Tool, arguments: Value) -> PlanEdit {
    let prepared = test.prepare(tool, arguments).unwrap();
    let [Effect::WritePath(target)] = prepared.effects.as_slice() else { panic!("{prepared:?}") };
    assert_eq!(Some(&target.real), test.plan_file.as_ref());
    match prepared.work {
        Work::Ask(Request::WritePlan(edit)) => edit,
        _ => panic!("the plan is written by the session only"),
    }
}

#[test]
fn the_plan_file_is_asked_for_without_a_reading() {
    let mut test = TestScene::new();
    let plan = test.root.join("plans/api-otter.md");
    std::fs::create_dir(test.root.join("plans")).unwrap();
    std::fs::write(&plan, "# Plan\nstep\n").unwrap();
    test.plan_file = Some(plan.clone());
    for typed in [plan.to_str().unwrap(), "../plans/api-otter.md", "../plans/../plans/api-otter.md"] {
        let asked = plan_request(&test, &WriteFile, json!({"file_path": typed, "content": "# New"}));
        assert_eq!(asked, PlanEdit::Replace { content: "# New".into() });
        let arguments = json!({"file_path": typed, "old_string": "step", "new_string": "1. step"});
        let asked = plan_request(&test, &EditFile, arguments);
        assert_eq!(asked, PlanEdit::Edit { old: "step".into(), new: "1. step".into(), all: false });
    }
    let arguments = json!({"file_path": plan, "old_string": "missing", "new_string": "x"});
    assert!(test.prepare(&EditFile, arguments).unwrap_err().0.contains("not found"));
    assert_eq!(std::fs::read(&plan).unwrap(), b"# Plan\nstep\n");
    // Gone or not there yet: still the plan.
    std::fs::remove_file(&plan).unwrap();
    plan_request(&test, &WriteFile, json!({"file_path": plan, "content": "# New"}));
}

#[test]
fn pm_23_only_the_exact_plan_file_is_the_plan() {
    let mut test = TestScene::new();
    let plans = test.root.join("plans");
    std::fs::create_dir(&plans).unwrap();
    let plan = plans.join("mine.md");
    std::fs::write(&plan, "# Mine\n").unwrap();
    std::fs::write(plans.join("other.md"), "# Theirs\n").unwrap();
    test.put("src/x.md", "source\n");
    test.plan_file = Some(plan.clone());
    let effect_of = |test: &TestScene, typed: &str, content: &str| {
        let prepared = test.prepare(&WriteFile, json!({"file_path": typed, "content": content})).unwrap();
        assert!(matches!(prepared.work, Work::Run(_)), "{typed} passed for the plan");
        prepared.effects
    };
    let writes = |typed: &str, real: std::path::PathBuf| {
        [Effect::WritePath(PathTarget { via: Via::Tool, typed: typed.to_owned(), real })]
    };
    // Equal contents, so that no reading is needed: what counts is the path that the gate gets.
    for (typed, real, content) in [
        ("../plans/../ws/src/x.md", test.path("src/x.md"), "source\n"),
        ("../plans/other.md", plans.join("other.md"), "# Theirs\n"),
        ("../plans/new.md", plans.join("new.md"), "new"),
        ("../plans/mine.md.bak", plans.join("mine.md.bak"), "new"),
    ] {
        assert_eq!(effect_of(&test, typed, content), writes(typed, real));
    }
    // The plan file replaced by a link: what it leads to is judged, and it is not the plan.
    std::fs::remove_file(&plan).unwrap();
    symlink(test.path("src/x.md"), &plan).unwrap();
    let typed = plan.to_str().unwrap();
    assert_eq!(effect_of(&test, typed, "source\n"), writes(typed, test.path("src/x.md")));
    assert_eq!(effect_of(&test, "src/x.md", "source\n"), writes("src/x.md", test.path("src/x.md")));
    let arguments = json!({"file_path": typed, "old_string": "source", "new_string": "evil"});
    assert!(test.prepare(&EditFile, arguments).unwrap_err().0.contains("read_file first"));
}

#[test]
fn what_cannot_be_done_still_says_what_it_would_touch() {
    let test = TestScene::new();
    let path = test.put("a.txt", "one\n");
    for (tool, arguments) in [
        (&EditFile as &dyn Tool, json!({"file_path": "a.txt", "old_string": "one", "new_string": "two"})),
        (&WriteFile, json!({"file_path": "a.txt", "content": "two"})),
    ] {
        let prepared = tool.prepare(&to_raw_value(&arguments).unwrap(), &test.scene()).unwrap();
        let Work::Refuse(error) = prepared.work else { panic!("an unread file was taken") };
        assert!(error.0.contains("Read"), "{error}");
        assert!(
            matches!(&prepared.effects[..], [Effect::WritePath(target)] if target.real == path),
            "the gate is not told of the file"
        );
    }
}
