//! `grep_search` against real files: the cases that comparable tools got wrong.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Arc;

use serde_json::{Value, json};

use super::grep_search::GrepSearch;
use super::test_scene::TestScene;
use crate::permission::effect::{Effect, PathTarget, Via};
use crate::permission::{Layer, List, RuleText, Rules};

fn found(test: &TestScene, arguments: Value) -> String {
    let output = test.call(&GrepSearch, arguments);
    assert!(!output.is_error, "{}", output.content);
    assert!(output.content.len() < 80_000, "unbounded: {} bytes", output.content.len());
    output.content
}

fn refused(test: &TestScene, pattern: &str) -> String {
    test.prepare(&GrepSearch, json!({"pattern": pattern})).unwrap_err().0
}

#[test]
fn matches_are_shown_sorted_by_path() {
    let test = TestScene::new();
    test.put("b.rs", "fn one() {}\nfn two() {}\r\n");
    test.put("a/c.rs", "let x = 1;\n\tfn inner() {}");
    test.put("a/c.txt", "fn in_text\n");
    let prepared = test.prepare(&GrepSearch, json!({"pattern": r"fn \w+"})).unwrap();
    assert_eq!(prepared.title, r"search fn \w+ in .");
    let all = "a/c.rs:2: \tfn inner() {}\na/c.txt:1: fn in_text\nb.rs:1: fn one() {}\nb.rs:2: fn two() {}\n";
    assert_eq!(test.run(prepared).content, all);
    assert_eq!(found(&test, json!({"pattern": "fn", "include": "*.txt"})), "a/c.txt:1: fn in_text\n");
    assert_eq!(found(&test, json!({"pattern": "two", "path": "b.rs"})), "b.rs:2: fn two() {}\n");
    assert_eq!(found(&test, json!({"pattern": "(?i)LET", "path": "a"})), "a/c.rs:1: let x = 1;\n");
    assert_eq!(found(&test, json!({"pattern": "nowhere"})), "No matches in . (3 files searched).\n");
    let prepared = test.prepare(&GrepSearch, json!({"pattern": "x", "path": "./a/../b.rs"})).unwrap();
    let target = PathTarget { via: Via::Tool, typed: "./a/../b.rs".into(), real: test.path("b.rs") };
    assert_eq!(prepared.effects, [Effect::ReadPath(target)]);
}

#[test]
fn many_matches_are_counted_a_file_and_capped_in_all() {
    let test = TestScene::new();
    test.put("a", "x\n".repeat(80));
    test.put("b", "x\n");
    let text = found(&test, json!({"pattern": "x"}));
    assert!(text.contains("a:50: x\na: [30 more matching lines]\nb:1: x\n"), "{text}");
    for n in 0..10 {
        test.put(format!("c{n}"), "x\n".repeat(50));
    }
    let text = found(&test, json!({"pattern": "x"}));
    assert_eq!(text.lines().filter(|line| line.ends_with(": x")).count(), 200);
    assert!(text.ends_with(
        "[Stopped after 200 matches; there may be more. Narrow `pattern`, `path` or `include`.]\n"
    ));
}

#[test]
fn sr_01_a_long_line_is_cut_around_the_match() {
    let test = TestScene::new();
    let line = format!("{}needle{}", "ä".repeat(1_000_000), "b".repeat(1_000_000));
    test.put("app.min.js", &line);
    let text = found(&test, json!({"pattern": "needle"}));
    assert!(text.len() < 1_500, "{} bytes", text.len());
    assert!(text.starts_with("app.min.js:1: …ä"), "{text}");
    assert!(text.contains("äneedleb"), "{text}");
    assert!(text.ends_with("b… [cut: the line has 3000006 bytes]\n"), "{text}");
    assert!(!text.contains('\u{fffd}'), "cut inside a character");
    // Many such lines stay bounded too.
    test.put("many.min.js", format!("{}\n", "needle ".repeat(1_000)).repeat(300));
    found(&test, json!({"pattern": "needle"}));
}

#[test]
fn sr_02_lines_longer_than_any_buffer_end_and_are_said() {
    let test = TestScene::new();
    for n in 0..3 {
        test.put(format!("long{n}"), format!("{}\nneedle\n", "z".repeat(20 << 20)));
    }
    let text = found(&test, json!({"pattern": "needle"}));
    assert_eq!(text, "long0:2: needle\nlong1:2: needle\nlong2:2: needle\n");
    let giant = test.put("giant", "");
    std::fs::File::options().write(true).open(giant).unwrap().set_len(300 << 20).unwrap();
    let wide = test.put("wide", "needle\n");
    let file = std::fs::File::options().append(true).open(wide).unwrap();
    std::io::Write::write_all(&mut &file, &vec![b'w'; 50 << 20]).unwrap();
    let text = found(&test, json!({"pattern": "needle"}));
    assert!(text.contains("giant (too large), wide (a line is too long to search)"), "{text}");
    assert!(text.contains("wide:1: needle"), "{text}");
}

#[test]
fn sr_02_an_interrupted_search_says_so() {
    let test = TestScene::new();
    test.put("f", "needle\n");
    let prepared = test.prepare(&GrepSearch, json!({"pattern": "needle"})).unwrap();
    test.cancel.cancel();
    assert!(test.run(prepared).is_error);
}

#[test]
fn sr_04_a_pattern_or_path_with_a_leading_dash_is_itself() {
    let test = TestScene::new();
    let script = test.put("evil.sh", "#!/bin/sh\ntouch ran\n");
    std::fs::set_permissions(script, PermissionsExt::from_mode(0o755)).unwrap();
    test.put("notes", "-S and --ctx and --pre=./evil.sh\n");
    for pattern in ["-S", "--ctx", "--pre=./evil.sh"] {
        let text = found(&test, json!({"pattern": pattern}));
        assert_eq!(text, "notes:1: -S and --ctx and --pre=./evil.sh\n", "{pattern}");
    }
    test.put("--pre=evil/f", "inside\n");
    assert_eq!(found(&test, json!({"pattern": "inside", "path": "--pre=evil"})), "--pre=evil/f:1: inside\n");
    assert_eq!(
        found(&test, json!({"pattern": "inside", "include": "--pre=*/f"})),
        "--pre=evil/f:1: inside\n"
    );
    assert!(!test.path("ran").exists());
}

#[test]
fn sr_05_patterns_that_cost_too_much_are_refused_and_the_rest_end() {
    let test = TestScene::new();
    test.put("f", format!("{}!\n", "a".repeat(200_000)));
    let text = found(&test, json!({"pattern": "(a+)+$"}));
    assert!(text.starts_with("No matches"), "{text}");
    let text = found(&test, json!({"pattern": "[^.]{0,90}x[^.]{0,90}"}));
    assert!(text.starts_with("No matches"), "{text}");
    let error = refused(&test, "(.{1,1000}){1,1000}");
    assert!(error.contains("size limit") && error.contains("smaller counts"), "{error}");
    assert!(refused(&test, &"a".repeat(1 << 20)).contains("too long"));
    assert!(refused(&test, "").contains("empty"));
    assert!(refused(&test, &"(".repeat(2_000)).contains("`pattern`"));
}

#[test]
fn sr_07_a_bad_pattern_is_an_error_that_names_the_problem() {
    let test = TestScene::new();
    test.put("f", "x\n");
    for (pattern, problem) in [
        ("(", "unclosed group"),
        ("[", "unclosed character class"),
        ("(?<=a)b", "look-behind"),
        (r"(a)\1", "backreferences"),
        ("a{2,1}", "repetition"),
        ("*", "repetition operator missing expression"),
        ("a\nb", "line by line"),
    ] {
        let error = refused(&test, pattern);
        assert!(error.contains("`pattern`") && error.contains(problem), "{pattern:?}: {error}");
    }
}

#[test]
fn sr_08_ignored_hidden_and_git_files() {
    let test = TestScene::new();
    test.put(".git/config", "needle\n");
    test.put(".gitignore", "ignored.txt\nvendor/\n");
    test.put("ignored.txt", "needle\n");
    test.put("vendor/lib.rs", "needle\n");
    test.put(".github/ci.yml", "needle\n");
    assert_eq!(found(&test, json!({"pattern": "needle"})), ".github/ci.yml:1: needle\n");
    assert_eq!(found(&test, json!({"pattern": "needle", "path": "ignored.txt"})), "ignored.txt:1: needle\n");
    assert_eq!(found(&test, json!({"pattern": "needle", "path": "vendor"})), "vendor/lib.rs:1: needle\n");
    let none = found(&test, json!({"pattern": "nothing"}));
    assert!(none.contains("What git ignores was not searched"), "{none}");
}

#[test]
fn sr_10_strange_names_stay_on_one_line() {
    use std::os::unix::ffi::OsStrExt;
    let test = TestScene::new();
    test.put(std::ffi::OsStr::from_bytes(b"b\xff"), "needle\n");
    test.put("a\nb", "needle\n");
    assert_eq!(
        found(&test, json!({"pattern": "needle"})),
        "a\\nb [name has control characters]:1: needle\nb\u{fffd} [name is not UTF-8]:1: needle\n"
    );
}

#[test]
fn sr_11_binary_files_are_named_only() {
    let test = TestScene::new();
    test.put("early", b"\0needle one\nneedle two\n");
    test.put("late", [b"needle\n".to_vec(), vec![b'x'; 1 << 20], b"\0needle\n".to_vec()].concat());
    test.put("image.png", b"\x89PNG\r\n\x1a\n\0\0needle\xff\xfe");
    test.put("other.bin", b"\0\0nothing");
    test.put("text", "needle\n");
    let text = found(&test, json!({"pattern": "needle"}));
    assert_eq!(
        text,
        "early: binary file matches\nimage.png: binary file matches\nlate: binary file matches\ntext:1: needle\n"
    );
}

#[test]
fn other_encodings_are_searched_as_text_where_they_say_what_they_are() {
    let test = TestScene::new();
    let utf16: Vec<u8> = "\u{feff}first\nneedle\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    test.put("utf16", utf16);
    test.put("latin1", b"caf\xe9 needle\n");
    let text = found(&test, json!({"pattern": "needle"}));
    assert_eq!(text, "latin1:1: caf\u{fffd} needle\nutf16:2: needle\n");
}

#[test]
fn the_outside_private_folders_and_devices_are_not_searched() {
    let mut test = TestScene::new();
    std::fs::write(test.root.join("home/secret"), "needle\n").unwrap();
    symlink(test.root.join("home"), test.path("folder-link")).unwrap();
    symlink(test.root.join("home/secret"), test.path("file-link")).unwrap();
    test.put("state/journal", "needle\n");
    test.private = vec![test.path("state")];
    let fifo = test.path("fifo");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert_eq!(found(&test, json!({"pattern": "needle"})), "No matches in . (0 files searched).\n");
    let prepare = |path: &str| test.prepare(&GrepSearch, json!({"pattern": "x", "path": path}));
    assert!(prepare("fifo").unwrap_err().0.contains("named pipe"));
    assert!(prepare("/proc/self/environ").unwrap_err().0.contains("refused"));
    // A link named by the call is followed, and judged by where it leads.
    let effects = prepare("file-link").unwrap().effects;
    let target =
        PathTarget { via: Via::Tool, typed: "file-link".into(), real: test.root.join("home/secret") };
    assert_eq!(effects, [Effect::ReadPath(target)]);
}

/// PR-20: what may not be read is not found either.
#[test]
fn what_a_rule_closes_to_readers_is_neither_searched_nor_listed() {
    let mut test = TestScene::new();
    for file in [".env", "deep/.env", "certs/a.pem", "secrets/x", "src/a"] {
        test.put(file, "needle\n");
    }
    let deny =
        |text: &str| RuleText { list: List::Deny, text: text.to_owned(), layer: Layer::User, place: None };
    let texts = ["Read(.env)", "Read(**/*.pem)", "Read(/secrets/**)"].map(deny).to_vec();
    test.rules = Some(Arc::new(Rules::parse(texts).0));
    let text = found(&test, json!({"pattern": "needle"}));
    assert_eq!(text, "src/a:1: needle\n");
    let list = |arguments| test.call(&crate::tool::list_files::ListFiles, arguments).content;
    let all = list(json!({"pattern": "**"}));
    assert!(all.contains("src/a") && !all.contains("needle"), "{all}");
    for hidden in [".env", ".pem", "secrets"] {
        assert!(!all.contains(hidden), "{all}");
    }
}
